# SPDX-License-Identifier: Apache-2.0
#
# What the machine needs: installs the packages of packages.txt and requirements.txt that are not
# there. Read by `dev`, which sets `root` and has step() and fail(). With everything in place it
# asks nothing of any registry, and takes some milliseconds.
# shellcheck shell=bash disable=SC2154

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "needs root or sudo to run: $*"
  fi
}

# Prints the lines of packages.txt of which no alternative is installed.
missing_packages() {
  local line name found installed
  installed=" $(dpkg-query -W -f='${Package}=${db:Status-Status} ' 2>/dev/null) "
  grep -v -e '^#' -e '^$' "$root/packages.txt" | while read -r line; do
    found=no
    for name in ${line//|/ }; do
      [[ "$installed" != *" $name=installed "* ]] || found=yes
    done
    [ "$found" = yes ] || printf '%s\n' "$line"
  done
}

# The first alternative of a line that apt can install.
choose_package() {
  local name
  for name in ${1//|/ }; do
    if [[ "$(LC_ALL=C apt-cache policy "$name")" == *"Candidate: "[!\(]* ]]; then
      printf '%s\n' "$name"
      return
    fi
  done
  fail "apt knows none of: $1"
}

install_packages() {
  command -v dpkg-query >/dev/null || fail "this is no Debian system: install what packages.txt names"
  local line name lines names=()
  mapfile -t lines < <(missing_packages)
  [ "${#lines[@]}" -gt 0 ] || return 0
  step "install ${lines[*]}"
  as_root apt-get -q -o DPkg::Lock::Timeout=300 update
  for line in "${lines[@]}"; do
    name="$(choose_package "$line")"
    names+=("$name")
  done
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends "${names[@]}"
}

# .venv with the packages of requirements.txt, made anew only when the list or python3 changed.
install_python() {
  local stamp="$root/.venv/stamp" wanted
  wanted="$(python3 --version) $(sha256sum <"$root/requirements.txt")"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then return 0; fi
  step "python packages into .venv"
  python3 -m venv "$root/.venv"
  "$root/.venv/bin/python" -m pip install -q -r "$root/requirements.txt"
  printf '%s' "$wanted" >"$stamp"
}

# Debian names the compilers and tools of LLVM by version: the one that packages.txt chose.
llvm_tool() {
  command -v "$1-14" || command -v "$1-19" || fail "$1 is not installed"
}
