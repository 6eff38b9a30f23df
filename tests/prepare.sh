#!/bin/sh
# Install what the tests need beside Python's packages: a browser, bubblewrap (the better of two sandboxes), and
# util-linux's `script`. As root or by sudo from Debian's packages; elsewhere the browser is Playwright's own.
#   prepare.sh venv       the module venv, which Debian keeps in a package of its own
#   prepare.sh PYTHON     the rest; PYTHON is that of the tests' environment
set -eu
python=$1
missing=""
if [ "$python" = venv ]; then
  missing="python3-venv"
else
  command -v chromium >/dev/null || missing="$missing chromium"
  command -v bwrap >/dev/null || missing="$missing bubblewrap"
  command -v unshare >/dev/null || missing="$missing util-linux"
  command -v script >/dev/null || missing="$missing bsdutils"
fi
[ -n "$missing" ] || exit 0

as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo -n"
if command -v apt-get >/dev/null && { [ -z "$as_root" ] || $as_root true 2>/dev/null; }; then
  echo "installing Debian's packages: $missing"
  $as_root apt-get update -qq
  # shellcheck disable=SC2086
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
  exit 0
fi
case $missing in
*chromium*)
  echo "Debian's packages cannot be installed here; installing Playwright's own Chromium"
  "$python" -m playwright install chromium
  ;;
esac
case $missing in
*bubblewrap*) echo "bubblewrap is missing and cannot be installed here: what needs it is skipped" ;;
*venv*) echo "the Python module venv is missing: install python3-venv" && exit 1 ;;
esac
