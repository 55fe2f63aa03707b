#!/bin/sh
# Runs every fuzz target for as long as its argument says (30s), one after the other. What one finds is left in its
# package's testdata/fuzz, where every later run of the tests tries it again.
set -eu
cd "$(dirname "$0")/.."
time=${1:-30s}
status=0
# go test -list prints the names of a package's targets, then "ok PACKAGE TIME".
listed=$(go test -list '^Fuzz' ./...)
names=''
while read -r first package _; do
	case $first in
	Fuzz*) names="$names $first" ;;
	ok)
		for name in $names; do
			echo "== $name in $package for $time"
			go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 10x "$package" </dev/null || status=1
		done
		names=''
		;;
	esac
done <<END
$listed
END
exit $status
