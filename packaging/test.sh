#!/usr/bin/env bash
# Runs every test as whoever calls it. Root is not how a sandbox is used and hides what an ordinary user meets, so
# root's run is followed by a second one, of the packages given as arguments, as an ordinary user.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p bin
go build -o bin/testreport ./packaging/testreport

# What a test finds depends on the machine, so no result is taken from go's cache (-count=1). Vet ran before.
run_tests() { # USER GO-TEST-ARGUMENT...
	local user=$1
	shift
	echo "== tests as $user"
	# Tests wait more than they compute, so one package more runs than there are processors.
	go test -json -count=1 -vet=off -timeout=10m -p "$(($(nproc) + 1))" "$@" | bin/testreport -as "$user" -log "bin/test-$user.log"
}

# What programs say of a sandbox, what becomes of a layer's files, everyday work, and what shells complete is the same for root, and takes
# minutes to try: only the ordinary user's run has it.
only_user='/sandbox/(lack|cow/changes)$'
only_users_tests='^TestEscapesWithAWorkspaceThatIsCopied$|^TestEscapesOfASessionsCommand$|^TestAPoisonedCacheReachesNobodyElse$|^TestEverydayWorkInAWorkspace$|^TestTheFirstCommandsOfPeopleAndAgents$|^TestLearnFindsTheLeastThatRealProjectsNeed$|^TestRealAgentsWorkInASessionsSandbox$|^TestEveryShellKnowsEveryOption$|^TestGoBuildsWithACacheThatItMayWrite$'

status=0
packages=(./...)
skipped=()
if [ "$(id -u)" -eq 0 ] && [ $# -gt 0 ]; then
	skipped=(-skip "$only_users_tests")
	mapfile -t packages < <(go list ./sandbox ./cmd/clai-sandbox ./integration/mcp ./... | grep -Ev "$only_user") # what takes longest first
fi
# Where tests run twice, once with a sandbox for each call of an agent's, and once with one for a session, which is the default.
if [ "$(id -u)" -eq 0 ] && [ $# -gt 0 ]; then export CLAI_SANDBOX_TEST_PER_CALL=1; fi
run_tests "$(id -un)" "${skipped[@]}" "${packages[@]}" || status=1
unset CLAI_SANDBOX_TEST_PER_CALL
if [ "$(id -u)" -eq 0 ] && [ $# -gt 0 ]; then
	if user=$(packaging/test-as-user.sh); then
		run_tests "$user" -exec="'$PWD/packaging/test-as-user.sh'" "$@" || status=1
	else
		echo "FAIL: the tests did not run as an ordinary user" >&2
		status=1
	fi
fi
exit $status
