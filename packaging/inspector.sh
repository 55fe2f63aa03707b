#!/usr/bin/env bash
# Installs what the tests use from npm into bin/npm: package managers and a scaffolder that they run in a sandbox, the official MCP inspector, and with
# "all" the protocol's conformance suite and an agent harness's own client. Versions are those that run on Node.js 20.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=(@modelcontextprotocol/inspector-cli@0.15.0 yarn@1.22.22 create-vite@7.1.3 pnpm@9.15.9)
[ "${1-}" != all ] || packages+=(@modelcontextprotocol/conformance@0.1.9 @openai/agents@0.3.3 zod@4)
command -v npm >/dev/null || {
	echo "inspector: npm is not here, so the tests that call the MCP server by its official inspector are skipped" >&2
	exit 0
}
stamp="bin/npm/.installed"
[ "$(cat "$stamp" 2>/dev/null)" != "${packages[*]}" ] || exit 0
mkdir -p bin/npm
if ! npm install --prefix bin/npm --no-audit --no-fund --no-save --ignore-scripts "${packages[@]}" >bin/npm/install.log 2>&1; then
	echo "inspector: npm could not install it (see bin/npm/install.log), so those tests are skipped" >&2
	exit 0
fi
echo "${packages[*]}" >"$stamp"
