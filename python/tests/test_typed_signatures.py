# SPDX-License-Identifier: Apache-2.0
"""Signatures of the receiver's side: every parameter and result has a type, so that a checker of a
user's program (`mypy --strict`) neither complains of untyped calls nor lets a wrong one pass."""

import inspect

import pytest

import segue

CLASSES = [segue.Receiver, segue.ReceiverGroup, segue.Weights]
FUNCTIONS = [segue.attach, segue.step_all, segue.local_ranks, segue.engine_hooks, segue.http_hooks,
             segue.row_slice, segue.column_slice, segue.transposed_view, segue.box_view,
             segue.blocked_scale_views, segue.share_gpu_memory, segue.map_gpu_memory]


def calls_of(owner):
    for name, member in inspect.getmembers(owner):
        if isinstance(inspect.getattr_static(owner, name), property):
            member = inspect.getattr_static(owner, name).fget
        # Those of Mapping, from which Weights derives, are typed elsewhere.
        if inspect.isfunction(member) and member.__module__.startswith("segue."):
            yield f"{owner.__name__}.{name}", member


CALLS = [call for owner in CLASSES for call in calls_of(owner)]
CALLS += [(function.__name__, function) for function in FUNCTIONS]


@pytest.mark.parametrize("name, call", CALLS, ids=[name for name, _ in CALLS])
def test_everything_has_a_type(name, call):
    signature = inspect.signature(call)
    untyped = [parameter.name for parameter in list(signature.parameters.values())
               if parameter.annotation is parameter.empty and parameter.name != "self"]
    assert not untyped
    assert signature.return_annotation is not signature.empty
