#!/usr/bin/env bash
# Runs one test binary as an ordinary user: root calls it through
#
#	go test -exec="$PWD/packaging/test-as-user.sh" ./sandbox/...
#
# in the package's directory. That user may not be able to read the checkout, so it gets a copy of its own, and a home
# and temporary directory, all gone afterwards. It is whoever called sudo, and otherwise nobody. Without arguments, it
# prints the user's name.
set -euo pipefail
umask 022
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# The uid must have a name: programs that a sandbox runs ask for it.
user=
for uid in "${SUDO_UID:-0}" 65534; do
	if [ "$uid" -ne 0 ] && user=$(id -un "$uid" 2>/dev/null); then break; fi
done
if [ -z "$user" ]; then
	echo "no ordinary user to run tests as: uid 65534 has no name" >&2
	exit 1
fi
gid=$(id -g "$uid")
as_user=(setpriv --reuid "$uid" --regid "$gid" --clear-groups --)
"${as_user[@]}" true || {
	echo "cannot become $user (uid $uid) here" >&2
	exit 1
}
if [ $# -eq 0 ]; then
	echo "$user"
	exit
fi

dir=$(mktemp -d /tmp/clai-test.XXXXXX)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
mkdir "$dir"/{src,home,tmp,run}
for entry in "$top"/*; do # not .git, which is large
	[ "$entry" = "$top/bin" ] || cp -RP "$entry" "$dir/src/"
done
mkdir "$dir/src/bin"
for entry in npm agents clai-sandbox clai-sandboxd clai-shell; do # large, and only read
	if "${as_user[@]}" test -r "$top/bin/$entry"; then ln -s "$top/bin/$entry" "$dir/src/bin/$entry"; fi
done
chmod 755 "$dir"
chmod 700 "$dir"/{home,tmp,run}
chown -R "$uid:$gid" "$dir"/{src,home,tmp,run}
cp "$1" "$dir/${1##*/}"
binary=$dir/${1##*/}
shift

# Directories that only root can enter are not on an ordinary user's PATH.
# shellcheck disable=SC2016 # the other shell expands it
path=$("${as_user[@]}" sh -c 'IFS=:; for d in $PATH; do if [ -x "$d/" ]; then printf "%s:" "$d"; fi; done')

environment=("HOME=$dir/home" "TMPDIR=$dir/tmp" "XDG_RUNTIME_DIR=$dir/run" "PATH=${path%:}" "USER=$user"
	"LOGNAME=$user" SHELL=/bin/sh "LANG=${LANG:-C.UTF-8}")
for name in GOFLAGS GOPROXY GOSUMDB GOTOOLCHAIN CGO_ENABLED CLAI_SANDBOX_TEST_REFUSED CLAI_SANDBOX_TEST_ESCAPES; do
	if [ -n "${!name-}" ]; then environment+=("$name=${!name}"); fi
done

here=$(pwd -P)
cd "$dir/src${here#"$top"}"
# go test's own limit is shorter and says which test hung; this one is for what does not heed it. In the foreground, so
# that an interrupt from the keyboard reaches the tests.
timeout --foreground --kill-after=10s 15m env -i "${environment[@]}" "${as_user[@]}" "$binary" "$@"
