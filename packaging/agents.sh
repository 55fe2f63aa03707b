#!/usr/bin/env bash
# Installs the programs of agents that tests drive (integration/agents) into bin/agents: packaging/agents/programs names them, with where each
# lies in its packages, and a directory beside it has the versions and digests. No package's own scripts run. What cannot be installed is
# told, and its tests are skipped. All together take a gigabyte.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v npm >/dev/null || {
	echo "agents: npm is not here, so the tests that drive real agents are skipped" >&2
	exit 0
}
mkdir -p bin/agents/bin
while read -r name where; do
	into="bin/agents/$name" wanted=$(cat "packaging/agents/$name"/* packaging/agents/programs)
	[ "$(cat "$into/.installed" 2>/dev/null)" != "$wanted" ] || continue
	rm -rf "$into" "bin/agents/bin/$name"
	mkdir "$into"
	cp "packaging/agents/$name"/* "$into/"
	npm ci --prefix "$into" --prefer-offline --no-audit --no-fund --ignore-scripts >"$into/install.log" 2>&1 </dev/null || true
	found=$(cd "$into" && compgen -G "$where" | head -n 1) || {
		echo "agents: npm could not install $name (see $into/install.log), so its test is skipped" >&2
		continue
	}
	ln -s "../$name/$found" "bin/agents/bin/$name"
	echo "$wanted" >"$into/.installed"
done <packaging/agents/programs
