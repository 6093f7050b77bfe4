# SPDX-License-Identifier: Apache-2.0
"""What a receiver has bound: kept alive, and looked at again before bytes are read or written.

A model may compute with other tensors than those that were bound: `model.float()`, `.to(...)`,
`p.data = ...`, a new `nn.Parameter`, `load_state_dict(assign=True)`, memory that was resized. An
update of tensors that nobody reads any more would be proven and worth nothing, so it is refused, by
name. What is found by looking: a tensor object whose memory lies elsewhere; and, where the receiver
knows how to look a tensor up (a module, a callable), another object in its place. What cannot be
found: another object, where only the old one was bound (an item of `state_dict()`, `.data`).
"""

import bisect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from segue.errors import Error, InvalidArgumentError
from segue.tensors import Described, describe_anywhere


class Module(Protocol):
    """A module of torch, as far as it is needed here."""

    def state_dict(self, *, keep_vars: bool = ...) -> Any: ...


def is_module(value: object) -> bool:
    """Whether it is a module of torch."""
    return any(base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module"
               for base in type(value).__mro__)


class ModuleTensors:
    """The tensors of a module's `state_dict()`, and where the module keeps each. Looking again goes
    from the module down, so that a submodule that was replaced is noticed too; it compares
    identities and addresses, about 0.1 µs for each tensor and submodule."""

    def __init__(self, module: Module) -> None:
        self._links: dict[tuple[int, str], tuple[dict[str, Any], str, object, str]] = {}
        self._leaves: list[tuple[dict[str, Any], str, Any, int, str]] = []
        self.found: list[tuple[str, Any]] = []
        for name, tensor in module.state_dict(keep_vars=True).items():
            self._add(module, name, tensor)
            self.found.append((name, tensor))

    def _add(self, module: Any, name: str, tensor: Any) -> None:
        *path, leaf = name.split(".")
        owner = module
        for key in path:
            children = getattr(owner, "_modules", {})
            owner = children.get(key)
            if owner is None:
                break
            self._links.setdefault((id(children), key), (children, key, owner, name))
        for tensors in (getattr(owner, "_parameters", {}), getattr(owner, "_buffers", {})):
            if tensors.get(leaf) is tensor and tensor is not None:
                self._leaves.append((tensors, leaf, tensor, tensor.data_ptr(), name))
                return
        raise InvalidArgumentError(
            f"tensor '{name}': the module's state_dict() has it, and the module does not keep it "
            "under that name; bind() it, with a callable that returns what the module uses")

    def replaced(self) -> str | None:
        """The name of a tensor that is not what was found at the start, or None."""
        for children, key, child, name in self._links.values():
            if children.get(key) is not child:
                return name
        for tensors, leaf, tensor, address, name in self._leaves:
            if tensors.get(leaf) is not tensor or tensor.data_ptr() != address:
                return name
        return None


class Bound:
    """Everything that a receiver has bound. Knows no receiver, so that the two do not keep each
    other alive."""

    def __init__(self) -> None:
        self._tensors: list[Described] = []
        self._modules: list[ModuleTensors] = []

    @property
    def device(self) -> str | None:
        """Of all of them; None while there is none."""
        return self._tensors[0].device if self._tensors else None

    def add(self, described: Described) -> None:
        self._tensors.append(described)

    def add_module(self, tensors: ModuleTensors) -> None:
        self._modules.append(tensors)

    def replaced(self) -> str | None:
        """The name of a tensor that does not lie there any more, or None."""
        name = self.replaced_in_module()
        if name is not None:
            return name
        for tensor in self._tensors:
            if tensor.where() != (tensor.address, tensor.nbytes):
                return tensor.name
        return None

    def replaced_in_module(self) -> str | None:
        """The same of modules alone: cheap enough for each step."""
        for module in self._modules:
            name = module.replaced()
            if name is not None:
                return name
        return None

    def generation(self) -> int:
        """1 while nothing was replaced."""
        return 1 if self.replaced() is None else 2

    def refuse_read_only(self) -> None:
        """InvalidArgumentError for memory of this process that the system would end it for writing
        to. Torch knows no read-only tensors; the map of the process does."""
        pages = list(_read_only_pages())
        begins = [begin for begin, _ in pages]
        for tensor in self._tensors:
            if tensor.device or not tensor.nbytes:
                continue
            at = bisect.bisect_left(begins, tensor.address + tensor.nbytes) - 1
            if at >= 0 and pages[at][1] > tensor.address:
                raise InvalidArgumentError(
                    f"tensor '{tensor.name}': its memory is mapped for reading only (a file or a "
                    "segment); give one that may be written")


def _read_only_pages() -> Iterator[tuple[int, int]]:
    """Ascending; none where the system does not tell."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                pages, rights = line.split(maxsplit=2)[:2]
                if "w" not in rights:
                    begin, _, end = pages.partition("-")
                    yield int(begin, 16), int(end, 16)
    except OSError:
        return


def describe_found(name: str, find: Callable[[], Any]) -> Described:
    """What `find()` returns now; where it lies is asked of what it returns then."""
    first = find()
    found = describe_anywhere(name, first)

    def where() -> tuple[int, int]:
        now = find()
        if now is first:
            return found.where()
        try:
            again = describe_anywhere(name, now)
        except Error:
            return 0, 0
        same = (again.dtype, again.shape, again.device) == (found.dtype, found.shape, found.device)
        return (again.address, again.nbytes) if same else (0, 0)

    return replace(found, where=where)
