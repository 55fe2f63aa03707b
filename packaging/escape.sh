#!/usr/bin/env bash
# Tries all escapes and prints a line for each: what was tried, what stopped it, and what becomes of it without a sandbox.
# As root, a second time as an ordinary user; and both once more as where the kernel refuses the calls that mounting takes, so
# that bubblewrap makes all mounts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

try() { # USER GO-TEST-ARGUMENT...
	local user=$1 status=0
	shift
	echo "== as $user"
	go test -count=1 -vet=off -timeout=8m -v -run '^TestEscapes' "$@" ./cmd/clai-sandbox >bin/escape.log || status=$?
	sed -n -E 's/^ *escape(_cow|_session)?_test\.go:[0-9]+: (held for .*)$/\2/p' bin/escape.log | sort
	grep -E '^ *--- (FAIL|SKIP)' bin/escape.log || true
	grep -c -E 'held for' bin/escape.log | sed 's/$/ attempts came to nothing/'
	return $status
}

export CLAI_SANDBOX_TEST_ESCAPES=all
status=0
for refused in "" mounts; do
	export CLAI_SANDBOX_TEST_REFUSED=$refused
	[ -z "$refused" ] || echo "== with the calls for mounting refused"
	try "$(id -un)" || status=1
	if [ "$(id -u)" -eq 0 ]; then
		user=$(packaging/test-as-user.sh)
		try "$user" -exec="'$PWD/packaging/test-as-user.sh'" || status=1
	fi
done
exit $status
