#!/usr/bin/env bash
# Runs every test as whoever calls it. Root is not how a sandbox is used and hides what an ordinary user meets, so
# root's run is followed by a second one, of the packages given as arguments, as an ordinary user.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p bin
go build -o bin/testreport ./packaging/testreport

# What a test finds depends on the machine, so no result is taken from go's cache (-count=1). Vet ran before. Tests wait more than they
# compute, so more packages run at a time than there are processors. The tests of ./sandbox and ./cmd/clai-sandbox take as long as all others
# together, one after the other: they run in two halves, by their names' first letters.
half='^(Test|Fuzz|Example)[A-G]'
command_half='^(Test|Fuzz|Example)[A-R]'
run_tests() { # USER SKIPPED-TESTS PACKAGES-BUT-THOSE... -- GO-TEST-ARGUMENT...
	local user=$1 skip=$2 packages=()
	shift 2
	while [ "$1" != -- ]; do packages+=("$1") && shift; done
	shift
	echo "== tests as $user"
	test=(go test -json -count=1 -vet=off -timeout=20m -p "$(($(nproc) + 1))" "$@")
	if bin/testreport -as "$user" -log "bin/test-$user.log" -again "bin/again-$user" \
		<("${test[@]}" -run "$half" -skip "$skip" ./sandbox) <("${test[@]}" -skip "$skip|$half" ./sandbox) \
		<("${test[@]}" -run "$command_half" -skip "$skip" ./cmd/clai-sandbox) <("${test[@]}" -skip "$skip|$command_half" ./cmd/clai-sandbox) \
		<("${test[@]}" -skip "$skip" "${packages[@]}"); then return; fi
	try_again "$user" "$@"
}

# Many tests have real programs race each other, beside all other tests on a busy machine. Where three of them at most failed, and nothing
# else, each is run three times more, alone, and has to pass each time. What failed first stays in the output, and is counted there.
try_again() { # USER GO-TEST-ARGUMENT...
	local user=$1 failed package name
	shift
	mapfile -t failed <"bin/again-$user"
	if [ ${#failed[@]} -eq 0 ] || [ ${#failed[@]} -gt 3 ]; then return 1; fi
	for line in "${failed[@]}"; do
		IFS=$'\t' read -r package name <<<"$line"
		if ! go test -count=3 -vet=off -timeout=10m "$@" -run "^$name\$" "$package" </dev/null; then
			echo "== $name as $user failed again, alone: $package"
			return 1
		fi
		echo "== $name as $user failed beside other tests, and passed three times alone: $package"
	done
}

# What programs say of a sandbox, what becomes of a layer's files, everyday work, and what shells complete is the same for root, and takes
# minutes to try: only the ordinary user's run has it.
only_user='/sandbox/(diagnosis|cow/changes)$'
only_users_tests='^TestEscapesWithAWorkspaceThatIsCopied$|^TestEscapesOfASessionsCommand$|^TestAPoisonedCacheReachesNobodyElse$|^TestEverydayWorkInAWorkspace$|^TestTheFirstCommandsOfPeopleAndAgents$|^TestLearnFindsTheLeastThatRealProjectsNeed$|^TestRealAgentsWorkInASessionsSandbox$|^TestRealAgentsWorkInsideAsAWhole$|^TestRealAgentsHaveTheirCommandsApart$|^TestRealAgentsRunTheirCommandsByOurShell$|^TestEveryShellKnowsEveryOption$|^TestGoBuildsWithACacheThatItMayWrite$'

status=0
root=$([ "$(id -u)" -eq 0 ] && [ $# -gt 0 ] && echo yes || true)
skipped=^$ but='/(clai-sandbox/sandbox|cmd/clai-sandbox)$'
if [ "$root" ]; then skipped=$only_users_tests but="$but|$only_user"; fi
packages() { go list "$@" | grep -Ev "$but"; }
# Where tests run twice, once with a sandbox for each call of an agent's, and once with one for a session, which is the default.
if [ "$root" ]; then export CLAI_SANDBOX_TEST_PER_CALL=1; fi
mapfile -t all < <(packages ./integration/mcp ./integration/agents ./...) # what takes longest first
run_tests "$(id -un)" "$skipped" "${all[@]}" -- || status=1
unset CLAI_SANDBOX_TEST_PER_CALL
if [ "$root" ]; then
	if user=$(packaging/test-as-user.sh); then
		but='/(clai-sandbox/sandbox|cmd/clai-sandbox)$'
		mapfile -t all < <(packages ./sandbox/cow/changes ./integration/mcp ./sandbox/diagnosis ./integration/agents "$@")
		run_tests "$user" '^$' "${all[@]}" -- -exec="'$PWD/packaging/test-as-user.sh'" || status=1
	else
		echo "FAIL: the tests did not run as an ordinary user" >&2
		status=1
	fi
fi
exit $status
