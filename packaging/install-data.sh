#!/bin/sh
# Installs the man pages and the schemas that are here, and the completions that the built command prints, below the
# directory given (PREFIX/share).
set -eu
cd "$(dirname "$0")"
share=$1

for page in man/*.[1-8]; do
	[ -f "$page" ] || continue # no pages were made
	install -d "$share/man/man${page##*.}"
	install -m 644 "$page" "$share/man/man${page##*.}"
done

install -d "$share/clai-sandbox"
install -m 644 ../docs/*.schema.json ../profile/config.schema.json "$share/clai-sandbox"

completion() { # SHELL DIRECTORY NAME
	script=$(../bin/clai-sandbox completion "$1")
	install -d "$2"
	printf '%s\n' "$script" >"$2/$3"
	chmod 644 "$2/$3"
}
completion bash "$share/bash-completion/completions" clai-sandbox
completion zsh "$share/zsh/site-functions" _clai-sandbox
completion fish "$share/fish/vendor_completions.d" clai-sandbox.fish
