package sandbox

import "github.com/clairun/clai-sandbox/profile"

// systemTrees are read-only in every sandbox, as far as the host has them. The short names are
// symbolic links into /usr on most hosts and directories on some; they are shown as what they are.
// Those in /var say what is installed: without them "dpkg -l" and "apt list --installed" answer
// that nothing is.
var systemTrees = []string{"/usr", "/etc", "/sys", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/var/lib/apt", "/var/lib/dpkg", "/var/lib/pacman", "/var/lib/rpm"}

// programTrees are read-only where the command's PATH leads into them; of /opt, what has a name of
// its own.
var programTrees = []string{"/nix/store", "/home/linuxbrew/.linuxbrew", "/snap", "/opt"}

// kernelTrees are those that the kernel makes: an image has none.
var kernelTrees = []string{"/sys"}

// systemFiles often are symbolic links out of /etc, and are useless without what they lead to.
var systemFiles = []string{"/etc/resolv.conf", "/etc/localtime"}

// varTmp is for anybody's files, as /tmp is, where nothing below it is used.
const varTmp = "/var/tmp"

const sshDirectory = "/etc/ssh"

// sshFiles are what an ssh client reads of the system's settings, below sshDirectory. ssh refuses a
// file whose owner is neither root nor the caller, and inside a user namespace root's files seem to
// be nobody's: so they are copied.
var sshFiles = []string{"ssh_config", "ssh_config.d/*.conf", "ssh_known_hosts", "ssh_known_hosts2", "known_hosts"}

// deviceSteps and processSteps are the same in every sandbox. /proc/sys is mounted again read-only
// because bwrap leaves it writable for uid 0, whom the kernel then lets rewrite core_pattern: a
// program that runs as root outside.
var (
	processSteps = []Step{
		{Kind: Proc, Path: "/proc", Origin: baseline},
		{Kind: Bind, Path: "/proc/sys", Source: "/proc/sys", Access: profile.ReadOnly, Origin: baseline},
	}
	deviceSteps = []Step{
		{Kind: Dev, Path: "/dev", Origin: baseline},
		{Kind: Private, Path: "/dev/shm", Mode: sticky, Origin: baseline},
	}
)

// ownDevices are what bubblewrap's /dev has.
var ownDevices = []string{"null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "fd", "stdin", "stdout", "stderr", "core", "console"}

// Without capabilities root is still the owner of root's files, and may do there what their
// permissions let the owner do. So for root alone the system's secrets and the kernel's own
// directories that are closed to others are covered, and its settings outside of /proc/sys are
// read-only: sysrq-trigger restarts the machine. What needs a capability to be written is left as
// it is.
var (
	rootsFiles       = []string{"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/krb5.keytab"}
	rootsDirectories = []string{"/etc/ssl/private", "/etc/wireguard", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf", "/sys/fs/pstore"}
	rootsSettings    = []string{"/proc/sysrq-trigger", "/proc/scsi", "/proc/acpi", "/proc/dynamic_debug"}
)

// sticky is the mode of a directory that all may write and only owners may clear.
const sticky = 0o1777

var baseline = profile.Origin{Kind: profile.OriginBaseline}

// processSteps leave /proc as it is where an ordinary user's command may make namespaces: the
// kernel mounts no new /proc in them while part of the old one is covered, and the settings in it
// are root's.
func (b *builder) processSteps() []Step {
	if b.profile.NestedNamespaces && b.profile.UID != 0 {
		return processSteps[:1]
	}
	return processSteps
}
