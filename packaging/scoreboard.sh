#!/usr/bin/env bash
# Makes the attempts of the escape suite in other launchers of sandboxes, and writes docs/scoreboard.md. Installs them: two
# from npm, below bin/peers; firejail is Debian's, and used where it is there (sudo apt-get install firejail ripgrep socat).
# Root needs the name of an ordinary user whom firejail lets in (firejail-users(5)): packaging/scoreboard.sh USER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
user=${1:-}
if [ "$(id -u)" -eq 0 ] && [ -z "$user" ]; then
	echo "as root, name an ordinary user: packaging/scoreboard.sh USER" >&2
	exit 2
fi
place=$(mktemp -d /var/tmp/scoreboard.XXXXXX)
trap 'rm -rf "$place"' EXIT
npm install --no-audit --no-fund --silent --prefix "$place" @anthropic-ai/sandbox-runtime @openai/codex
go test -c -o "$place/escapes" ./cmd/clai-sandbox
mkdir -p "$place/cmd/clai-sandbox" "$place/home" "$place/docs"
chmod -R a+rX "$place"
chmod 777 "$place/docs" "$place/home" "$place/cmd/clai-sandbox"
run=(env "HOME=$place/home" "TMPDIR=$place/home" "CLAI_SANDBOX_PEERS=$place/node_modules/.bin" "CLAI_SANDBOX_SCOREBOARD=$place/docs"
	"$place/escapes" -test.run '^TestScoreboard$' -test.timeout 30m)
if [ -n "$user" ]; then
	run=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups "${run[@]}")
fi
status=0
(cd "$place/cmd/clai-sandbox" && "${run[@]}") || status=$?
cp "$place/docs/scoreboard.md" docs/scoreboard.md
tail -n 1 docs/scoreboard.md
exit $status
