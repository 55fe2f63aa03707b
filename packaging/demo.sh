#!/bin/sh
# Shows what a sandboxed command can and cannot do. Each line is an attempt, made twice by the same script: outside, to
# show what there is to be kept from, and in the sandbox. Status 1 if the sandbox let through what it must not, or kept
# back what a command needs.
set -eu
sandbox=$(cd "$(dirname "$0")/.." && pwd)/bin/clai-sandbox

workspace='' waiting='' in_tmp='' in_home='' process='' left=''
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
	[ -z "$process" ] || kill "$process" || :
	rm -rf "$workspace" "$waiting" "$in_tmp" "$in_home"
	[ -z "$left" ] || rm -f "$HOME/$left" "/tmp/$left"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

workspace=$(mktemp -d)
in_tmp=$(mktemp /tmp/clai-demo.XXXXXX)
in_home=$(mktemp "$HOME/.clai-demo.XXXXXX") || in_home='' # a home that cannot be written
left=clai-demo.left.$$ # the name of what the attempts leave behind
echo secret >"$in_tmp"
[ -z "$in_home" ] || echo secret >"$in_home"
find /run -type s -exec ls -i {} + 2>/dev/null | sed 's/^ *//' >"$workspace/sockets" || :
# A process, known by the name of the file that it waits on.
waiting=$(mktemp /tmp/clai-demo-process.XXXXXX)
tail -f "$waiting" &
process=$!

# Prints "NAME yes" or "NAME no" for each attempt. To append nothing opens a file for writing and leaves it as it is.
# The brackets keep grep from finding its own command line, and this one.
# shellcheck disable=SC2016 # the other shell expands it
attempts='
home=$1 in_home=$2 in_tmp=$3 left=$4
try() {
	name=$1
	shift
	if ("$@") >/dev/null 2>&1; then echo "$name yes"; else echo "$name no"; fi
}
append() { : >>"$1"; }
leave() { echo left >"$1"; }
host_socket() { find /run -type s -exec ls -i {} + | sed "s/^ *//" | grep -qxF -f sockets; }
host_process() { grep -q "clai-demo-proces[s]" /proc/[0-9]*/cmdline; }
network() { grep : /proc/net/dev | grep -qv "^ *lo:"; }

echo "user $(id -un 2>/dev/null || id -u)"
try programs     /usr/bin/env true
try usr          append /usr/bin/env
try home         cat "$in_home"
try tmp          cat "$in_tmp"
try sockets      host_socket
try processes    host_process
try core_pattern append /proc/sys/kernel/core_pattern
try network      network
leave written
leave "$home/$left"
leave "/tmp/$left"
exit 0
'

# Runs the attempts with a command in front, and adds what they left behind: the host's view of it is what counts.
attempt() {
	"$@" sh -c "$attempts" sh "$HOME" "$in_home" "$in_tmp" "$left" 2>"$workspace/errors" || {
		status=$?
		cat "$workspace/errors" >&2
		return "$status"
	}
	found written "$workspace/written"
	found left_home "$HOME/$left"
	found left_tmp "/tmp/$left"
}

found() { # NAME FILE
	if [ -e "$2" ]; then echo "$1 yes"; else echo "$1 no"; fi
	rm -f "$2"
}

cd "$workspace"
echo "\$ clai-sandbox run -- sh -c '...'        (in the workspace $workspace)"
echo
without=$(attempt env)
within=$(attempt "$sandbox" run --) || {
	echo "the sandbox did not run the attempts" >&2
	exit 1
}

answer() { # NAME ANSWERS
	printf '%s\n' "$2" | sed -n "s/^$1 //p"
}

status=0
printf '%-54s%-10s%s\n' 'the same attempts by a command' outside 'in the sandbox'
while read -r name wanted label; do
	inside=$(answer "$name" "$within")
	remark=''
	if [ "$wanted" != any ] && [ "$inside" != "$wanted" ]; then
		remark="   <- must be $wanted"
		status=1
	fi
	printf '  %-52s%-10s%s%s\n' "$label" "$(answer "$name" "$without")" "$inside" "$remark"
done <<'END'
user         any is
programs     yes runs the programs in /usr
written      yes writes in the workspace
usr          no  changes the programs in /usr
home         yes reads the home directory (a new agent's one grant)
left_home    no  leaves a file in the home directory
tmp          no  reads what others keep in /tmp
left_tmp     no  leaves a file in /tmp for others
sockets      no  sees the host's sockets in /run
processes    no  sees the host's processes
core_pattern no  opens /proc/sys/kernel/core_pattern
network      any has a network interface
END
exit $status
