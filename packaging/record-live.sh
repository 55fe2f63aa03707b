#!/usr/bin/env bash
# Records docs/live-grant.txt: one running sandbox and a person beside it, both real. What is typed is written here; all else is
# what the programs say. Ids and times differ from run to run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
top=$PWD bin=$PWD/bin
base=$(mktemp -d /var/tmp/clai-sandbox-record-XXXXXX)
trap 'rm -rf "$base"' EXIT
export HOME=$base/home XDG_RUNTIME_DIR=$base/run USER=you PATH=$bin:/usr/bin:/bin
unset XDG_STATE_HOME XDG_CONFIG_HOME
mkdir -p "$HOME/project" "$base/srv/plans/2027" "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
echo 'ship it' >"$base/srv/plans/2027/plan.md"
echo 'salaries' >"$base/srv/plans/private.md"
cd "$HOME/project"

show() { sed -e "s|$base/home|/home/you|g" -e "s|$base||g"; }
# The agent's shell runs in one sandbox from the first line to the last.
mkfifo "$base/in" "$base/out"
clai-sandbox run --broker -- sh <"$base/in" >"$base/out" 2>&1 &
exec 8>"$base/in" 9<"$base/out"
inside() { # COMMAND: typed inside, with what it says
	printf 'agent$ %s\n' "$1" | show
	printf '{ %s\n} 2>&1; echo "=done="\n' "$1" >&8
	while IFS= read -r line <&9 && [ "$line" != =done= ]; do printf '%s\n' "$line"; done | show
}
outside() { # COMMAND: typed by the person
	printf '            you$ %s\n' "$1" | show
	eval "$1" 2>&1 | sed 's/^/            /' | show
}
first() { clai-sandbox grants "$1" --json | grep -o "\"$2\":\"[^\"]*\"" | head -1 | cut -d'"' -f4; }

{
	echo '# One sandbox runs the agent'"'"'s shell all the time. You are in another terminal.'
	echo
	inside "cat $base/srv/plans/2027/plan.md"
	inside "fs_request_grant $base/srv/plans --access read_write --reason 'to read the plan' > answer &"
	until [ -n "$(first pending requestId)" ]; do sleep 0.05; done
	id=$(first pending requestId)
	echo
	outside 'clai-sandbox grants pending'
	outside "clai-sandbox grants allow ${id:0:8} --path $base/srv/plans/2027 --access ro"
	echo
	inside 'wait; cat answer'
	inside "cat $base/srv/plans/2027/plan.md"
	inside "echo x > $base/srv/plans/2027/plan.md"
	inside "ls $base/srv/plans"
	echo
	grant=$(first list id)
	outside "clai-sandbox grants revoke ${grant:0:4}"
	echo
	inside "cat $base/srv/plans/2027/plan.md"
} >"$base/recorded"
exec 8>&-
wait
sed "s/ *\$//" "$base/recorded" >"$top/docs/live-grant.txt"
