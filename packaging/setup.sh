#!/bin/sh
# Installs what is missing on this machine, through its own package manager.
#
#	packaging/setup.sh run	what a sandbox needs
#	packaging/setup.sh test	what the tests use as well
#
# Where nothing is missing it prints nothing, changes nothing and does not touch the network.
#
# Lists of words and commands with their arguments are kept in variables and split on purpose:
# shellcheck disable=SC2086,SC2046
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
go_minor=26 # the least Go is 1.$go_minor

# One line a program. "must": not without it; "nice": go on without it, and say so; "-": not used. The packages are
# named by Debian, Fedora, Arch, openSUSE and Alpine; "=" is Debian's name, "a/b" is the first that the archive has.
list_programs() {
	while read -r program run test apt dnf pacman zypper apk why; do
		case $program in '' | program) continue ;; esac
		"$@"
	done <<-'END'
		program        run  test  apt               dnf             pacman    zypper          apk        why
		bwrap          must must  bubblewrap        =               =         =               =          every sandbox is made by it
		xdg-dbus-proxy nice must  xdg-dbus-proxy    =               =         =               =          it filters a sandbox's session bus
		setpriv        -    must  util-linux        =               =         =               setpriv    root's tests run again as an ordinary user
		bash           -    must  bash              =               =         =               =          the test scripts are written in it
		make           -    must  make              =               =         =               =          tests run it in a sandbox
		python3        -    must  python3           =               python    =               =          tests use its sockets and system calls
		git            -    must  git               =               =         =               =          tests protect a repository with it
		ssh            -    must  openssh-client    openssh-clients openssh   openssh-clients =          tests look for its keys and agent
		sshd           -    nice  openssh-server    =               openssh   openssh-server  =          tests sign in to it with git
		gpg            -    nice  gnupg             =               =         gpg2            =          tests sign commits with it
		curl           -    must  curl              =               =         =               =          tests reach the network with it
		dbus-daemon    -    must  dbus-daemon/dbus  dbus-daemon     dbus      dbus-1          dbus       tests start a session bus of their own
		dbus-send      -    nice  dbus-bin/dbus     dbus-tools      dbus      dbus-1-tools    dbus       tests call services on a session bus with it
		secret-tool    -    nice  libsecret-tools   libsecret       libsecret libsecret-tools libsecret  tests ask a real keyring with it
		gnome-keyring-daemon - nice gnome-keyring   =               =         =               =          tests ask a real keyring with it
		ps             -    must  procps            procps-ng       procps-ng =               procps-ng  tests count processes
		node           -    nice  nodejs            =               =         =               =          tests run it in a sandbox
		npm            -    nice  npm               nodejs-npm      =         npm-default     =          tests install the official MCP inspector with it
		ipcs           -    must  util-linux        util-linux-core =         util-linux-systemd =       tests look for shared memory
		zsh            -    nice  zsh               =               =         =               =          tests complete commands in it
		fish           -    nice  fish              =               =         =               =          tests complete commands in it
		bash-completion - nice    bash-completion   =               =         =               =          tests complete commands with it
		tinyproxy      -    nice  tinyproxy-bin/tinyproxy tinyproxy tinyproxy tinyproxy =            tests go through it as through a company's proxy
		mandoc         -    nice  mandoc            =               =         =               =          tests read the man page with it
	END
}

say() { printf 'setup: %s\n' "$*"; }

die() {
	say "$@" >&2
	exit 1
}

check_go() {
	command -v go >/dev/null ||
		die "Go 1.$go_minor or newer is needed, and there is no go on PATH: see https://go.dev/dl/"
	# Outside the checkout and with GOTOOLCHAIN=local, go answers for itself. In the checkout, and where it is allowed to,
	# it fetches what go.mod asks for, and says so.
	found=$(cd / && GOTOOLCHAIN=local go version)
	[ "$(minor_of "$found")" -lt "$go_minor" ] || return 0
	fetched=$(cd "$top" && go version) || fetched=$found
	[ "$(minor_of "$fetched")" -ge "$go_minor" ] ||
		die "Go 1.$go_minor or newer is needed, and this is ${fetched#go version }: see https://go.dev/dl/"
}

minor_of() { # "go version go1.26.8 linux/amd64": 26
	minor=${1#*go1.}
	minor=${minor%%[!0-9]*}
	echo "${minor:-0}"
}

have() {
	# Not a program, but functions that bash loads.
	[ "$1" != bash-completion ] || {
		[ -r /usr/share/bash-completion/bash_completion ]
		return
	}
	command -v "$1" >/dev/null || return 1
	# Busybox has a setpriv that cannot change the user.
	[ "$1" != setpriv ] || setpriv --help 2>&1 | grep -q -e --reuid
}

# Adds the program that list_programs is at to $must or $nice if it is missing.
collect() {
	case $purpose in run) need=$run ;; test) need=$test ;; esac
	[ "$need" != - ] || return 0
	! have "$program" || return 0
	# Its package has systemd start it, for all of the network: nothing that a set-up for tests may do to somebody's machine.
	[ "$program" != sshd ] || [ ! -d /run/systemd/system ] || return 0
	case $need in must) must="$must $program" ;; nice) nice="$nice $program" ;; esac
}

# Sets $install and $refresh, both empty when the package manager is none that is known here.
find_manager() {
	manager='' install='' refresh=''
	for candidate in apt-get dnf pacman zypper apk; do
		command -v "$candidate" >/dev/null || continue
		manager=${candidate%-get}
		break
	done
	case $manager in
	apt)
		install='env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends'
		refresh='apt-get update'
		;;
	dnf) install='dnf install -y --setopt=install_weak_deps=False' ;;
	pacman)
		install='pacman -S --needed --noconfirm'
		refresh='pacman -Sy'
		;;
	zypper) install='zypper --non-interactive install --no-recommends' ;;
	apk) install='apk add --update-cache' ;;
	esac
}

lists_missing() {
	case $manager in
	apt) ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 ;;
	pacman) ! ls /var/lib/pacman/sync/*.db >/dev/null 2>&1 ;;
	*) false ;;
	esac
}

# Runs a command as root, and shows what it printed only if it fails.
quietly() {
	status=0
	$root "$@" >"$log" 2>&1 </dev/null || status=$?
	[ "$status" -eq 0 ] || cat "$log" >&2
	return "$status"
}

refresh_lists() {
	refreshed=yes
	say "refreshing the lists of packages: $refresh"
	quietly $refresh || say "could not refresh them, going on with those that are here" >&2
}

# Lists that are too old name packages that the archive has no more, so apt gets a second try with fresh ones.
install_packages() {
	quietly $install "$@" && return
	[ "$manager" = apt ] && [ -z "$refreshed" ] || return 1
	refresh_lists
	quietly $install "$@"
}

# Prints "package why" for one program.
package_of() { list_programs print_package "$1"; }

print_package() {
	[ "$program" = "$1" ] || return 0
	case $manager in
	apt) package=$apt ;; dnf) package=$dnf ;; pacman) package=$pacman ;;
	zypper) package=$zypper ;; apk) package=$apk ;; *) package=$apt ;;
	esac
	[ "$package" != = ] || package=$apt
	case $package in
	*/*) if apt-cache show "${package%/*}" >/dev/null 2>&1; then package=${package%/*}; else package=${package#*/}; fi ;;
	esac
	echo "$package $why"
}

# Prints the packages of some programs, each once.
packages_of() {
	for wanted in "$@"; do
		answer=$(package_of "$wanted")
		echo "${answer%% *}"
	done | sort -u | paste -sd " " -
}

announce() { # VERB PROGRAM...
	verb=$1
	shift
	for wanted in "$@"; do
		answer=$(package_of "$wanted")
		say "$verb ${answer%% *}: ${answer#* }"
	done
}

install_missing() {
	find_manager
	if [ -z "$manager" ]; then
		announce 'not installed:' $nice >&2
		[ -n "$must" ] || return 0
		announce missing $must >&2
		die "no package manager that is known here; install these by hand, by whatever name it has for them"
	fi

	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	trap 'exit 130' INT TERM

	root=none
	if [ "$(id -u)" -eq 0 ]; then
		root=''
	else
		for candidate in sudo doas; do
			if command -v "$candidate" >/dev/null; then root=$candidate && break; fi
		done
	fi
	if [ "$root" = none ]; then
		announce 'not installed:' $nice >&2
		[ -n "$must" ] || return 0
		announce missing $must >&2
		die "this is not root and there is no sudo; as root, run: ${refresh:+$refresh && }$install $(packages_of $must)"
	fi

	refreshed=''
	if lists_missing; then refresh_lists; fi
	if [ -n "$must" ]; then
		announce installing $must
		packages=$(packages_of $must)
		install_packages $packages ||
			die "could not install $packages; to try by hand: ${root:+$root }$install $packages"
	fi
	for wanted in $nice; do
		announce installing "$wanted"
		install_packages $(packages_of "$wanted") || say "could not install $wanted, going on without it" >&2
	done
	hash -r
	for wanted in $must; do
		have "$wanted" || die "$(packages_of "$wanted") is installed and there is still no $wanted on PATH"
	done
}

purpose=${1:-run}
case $purpose in
run | test) ;;
*)
	echo "usage: $0 [run|test]" >&2
	exit 2
	;;
esac
check_go
must='' nice=''
list_programs collect
if [ -n "$must$nice" ]; then
	PATH=$PATH:/usr/sbin:/sbin # where installers expect their helpers
	install_missing
fi
