#!/bin/sh
# Installs the man pages and the schemas that are here, and the completions that the built command prints, below the
# directory given (PREFIX/share), and the units of systemd that start the programs where the second argument says that they
# will be.
set -eu
cd "$(dirname "$0")"
share=$1
bin=$2

for page in man/*.[1-8]; do
	[ -f "$page" ] || continue # no pages were made
	install -d "$share/man/man${page##*.}"
	install -m 644 "$page" "$share/man/man${page##*.}"
done

install -d "$share/clai-sandbox"
install -m 644 ../docs/*.schema.json ../profile/config.schema.json ../grants/server/openapi.json "$share/clai-sandbox"

# Units of the user's systemd. Nothing is enabled: systemctl --user enable --now clai-sandbox-gateway.socket
units=$(dirname "$share")/lib/systemd/user
install -d "$units"
install -m 644 systemd/clai-sandbox-gateway.socket "$units"
sed "s|@BINDIR@|$bin|" systemd/clai-sandbox-gateway.service >"$units/clai-sandbox-gateway.service"
chmod 644 "$units/clai-sandbox-gateway.service"

completion() { # SHELL DIRECTORY NAME
	script=$(../bin/clai-sandbox completion "$1")
	install -d "$2"
	printf '%s\n' "$script" >"$2/$3"
	chmod 644 "$2/$3"
}
completion bash "$share/bash-completion/completions" clai-sandbox
completion zsh "$share/zsh/site-functions" _clai-sandbox
completion fish "$share/fish/vendor_completions.d" clai-sandbox.fish
