package sandbox

import "golang.org/x/sys/unix"

// syscallRules is what no command in a sandbox may ask of the kernel, a row for each call or form of a call. What is not
// here is allowed: ptrace(2) within the sandbox, so that debuggers work; seccomp(2), so that programs can have less still.
//
// EPERM is for what a command may be told that it must not do; ENOSYS and the like are for what a program tries first and
// does without where the kernel is older.
var syscallRules = []syscallRule{
	{call: "ioctl", amd64: 16, arm64: 29, errno: unix.EPERM,
		when:   []condition{{argument: 1, mask: all, in: []uint32{unix.TIOCSTI, unix.TIOCLINUX}}},
		reason: "TIOCSTI types into the caller's terminal (CVE-2017-5226), TIOCLINUX pastes into a console (CVE-2023-28100)"},
	{call: "ioctl", amd64: 16, arm64: 29, errno: unix.EPERM,
		when: []condition{{argument: 1, mask: all, in: []uint32{unix.TIOCSETD, unix.TIOCEXCL, unix.TIOCCONS, unix.TIOCVHANGUP,
			unix.TIOCSLCKTRMIOS, unix.TIOCSSERIAL}}},
		reason: "another line discipline, an exclusive or hung up terminal and locked modes stay with the caller's terminal when the command is gone"},
	{call: "ioctl", amd64: 16, arm64: 29, errno: unix.EPERM,
		when:   []condition{{argument: 1, mask: consoleRequests, in: []uint32{consoleKeyboard, consoleSwitch}}},
		reason: "a console's keys, font, screen and switching (ioctl_console(2)): what a key is made to type, the caller types"},

	{call: "clone", amd64: 56, arm64: 220, errno: unix.EPERM, unlessNested: true, when: newUserNamespace,
		reason: "a user namespace brings capabilities, and with them most of the kernel's attack surface"},
	{call: "unshare", amd64: 272, arm64: 97, errno: unix.EPERM, unlessNested: true, when: newUserNamespace,
		reason: "the same by another way"},
	{call: "clone3", amd64: 435, arm64: 435, errno: unix.ENOSYS, unlessNested: true,
		reason: "its flags are in memory, where a filter cannot look; libc falls back to clone"},
	{call: "setns", amd64: 308, arm64: 268, errno: unix.EPERM, unlessNested: true,
		reason: "nobody inside has a namespace to enter"},
	{call: "mount", amd64: 165, arm64: 40, errno: unix.EPERM, unlessNested: true,
		reason: "a remount takes a protection back; without capabilities it fails anyway, and this is the second lock"},
	{call: "umount2", amd64: 166, arm64: 39, errno: unix.EPERM, unlessNested: true,
		reason: "an unmount uncovers what a mask covers; the second lock"},
	{call: "pivot_root", amd64: 155, arm64: 41, errno: unix.EPERM, unlessNested: true,
		reason: "changes what is the root; the second lock"},

	{call: "open_tree", amd64: 428, arm64: 428, errno: unix.ENOSYS, reason: newMountAPI},
	{call: "open_tree_attr", amd64: 467, arm64: 467, errno: unix.ENOSYS, reason: newMountAPI},
	{call: "move_mount", amd64: 429, arm64: 429, errno: unix.ENOSYS, reason: newMountAPI},
	{call: "fsopen", amd64: 430, arm64: 430, errno: unix.ENOSYS, reason: newMountAPI},
	{call: "fsconfig", amd64: 431, arm64: 431, errno: unix.ENOSYS, reason: newMountAPI},
	{call: "fsmount", amd64: 432, arm64: 432, errno: unix.ENOSYS, reason: newMountAPI},
	{call: "fspick", amd64: 433, arm64: 433, errno: unix.ENOSYS, reason: newMountAPI},
	{call: "mount_setattr", amd64: 442, arm64: 442, errno: unix.ENOSYS, reason: newMountAPI},
	{call: "open_by_handle_at", amd64: 304, arm64: 265, errno: unix.EPERM,
		reason: "opens a file by its number, past every mount (the \"shocker\" way out of early containers)"},

	{call: "io_uring_setup", amd64: 425, arm64: 425, errno: unix.EPERM, reason: ioUring},
	{call: "io_uring_enter", amd64: 426, arm64: 426, errno: unix.EPERM, reason: ioUring},
	{call: "io_uring_register", amd64: 427, arm64: 427, errno: unix.EPERM, reason: ioUring},
	{call: "bpf", amd64: 321, arm64: 280, errno: unix.EPERM,
		reason: "programs for the kernel: its verifier has been fooled again and again"},
	{call: "perf_event_open", amd64: 298, arm64: 241, errno: unix.EPERM,
		reason: "a large and often broken interface that also measures other processes"},
	{call: "userfaultfd", amd64: 323, arm64: 282, errno: unix.EPERM,
		reason: "stops the kernel in the middle of a copy, which turns its races into certainties"},

	{call: "keyctl", amd64: 250, arm64: 219, errno: unix.EPERM, reason: keyrings},
	{call: "add_key", amd64: 248, arm64: 217, errno: unix.EPERM, reason: keyrings},
	{call: "request_key", amd64: 249, arm64: 218, errno: unix.EPERM, reason: keyrings},

	{call: "socket", amd64: 41, arm64: 198, errno: unix.EAFNOSUPPORT,
		when:   []condition{{argument: 0, mask: all, notIn: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}}},
		reason: "other families are for special hardware, and load modules; vsock reaches the machine's host through any network namespace"},
	{call: "socket", amd64: 41, arm64: 198, errno: unix.EPROTONOSUPPORT,
		when: []condition{
			{argument: 0, mask: all, in: []uint32{unix.AF_NETLINK}},
			{argument: 2, mask: all, notIn: []uint32{unix.NETLINK_ROUTE}}},
		reason: "libc needs netlink for addresses only; the others show the host's sockets and devices, or set up its filters"},
	{call: "socket", amd64: 41, arm64: 198, errno: unix.ESOCKTNOSUPPORT,
		when: []condition{
			{argument: 0, mask: all, in: []uint32{unix.AF_INET, unix.AF_INET6}},
			{argument: 1, mask: socketType, notIn: []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW}}},
		reason: "SCTP and DCCP: modules that nobody has loaded, with a history of holes"},
	{call: "socket", amd64: 41, arm64: 198, errno: unix.EPROTONOSUPPORT,
		when: []condition{
			{argument: 0, mask: all, in: []uint32{unix.AF_INET, unix.AF_INET6}},
			{argument: 2, mask: all, notIn: []uint32{0, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6, unix.IPPROTO_MPTCP}}},
		reason: "the same by their protocol's number"},

	{call: "personality", amd64: 135, arm64: 92, errno: unix.EPERM,
		when:   []condition{{argument: 0, mask: notHarmless, notIn: []uint32{personalityLinux, personalityLinux32, askPersonality}}},
		reason: "other personalities bring old behaviour back that exploits want; a debugger may turn address randomization off"},
	{call: "chmod", amd64: 90, arm64: none, errno: unix.EPERM, when: setuid(1), reason: setuidPrograms},
	{call: "fchmod", amd64: 91, arm64: 52, errno: unix.EPERM, when: setuid(1), reason: setuidPrograms},
	{call: "fchmodat", amd64: 268, arm64: 53, errno: unix.EPERM, when: setuid(2), reason: setuidPrograms},
	{call: "fchmodat2", amd64: 452, arm64: 452, errno: unix.EPERM, when: setuid(2), reason: setuidPrograms},
	{call: "creat", amd64: 85, arm64: none, errno: unix.EPERM, when: setuid(1), reason: setuidPrograms},
	{call: "open", amd64: 2, arm64: none, errno: unix.EPERM, when: append(setuid(2), creates(1)), reason: setuidPrograms},
	{call: "openat", amd64: 257, arm64: 56, errno: unix.EPERM, when: append(setuid(3), creates(2)), reason: setuidPrograms},
	{call: "openat2", amd64: 437, arm64: 437, errno: unix.ENOSYS, reason: "its mode is in memory, where a filter cannot look; programs fall back to openat"},
	{call: "mknod", amd64: 133, arm64: none, errno: unix.EPERM, when: setuid(1), reason: setuidPrograms},
	{call: "mknodat", amd64: 259, arm64: 33, errno: unix.EPERM, when: setuid(2), reason: setuidPrograms},

	{call: "modify_ldt", amd64: 154, arm64: none, errno: unix.EPERM,
		reason: "16-bit segments: only old exploits and Windows programs want them"},
	{call: "uselib", amd64: 134, arm64: none, errno: unix.ENOSYS, reason: "no program has used it for decades"},

	{call: "init_module", amd64: 175, arm64: 105, errno: unix.EPERM, reason: theKernelItself},
	{call: "finit_module", amd64: 313, arm64: 273, errno: unix.EPERM, reason: theKernelItself},
	{call: "delete_module", amd64: 176, arm64: 106, errno: unix.EPERM, reason: theKernelItself},
	{call: "kexec_load", amd64: 246, arm64: 104, errno: unix.EPERM, reason: theKernelItself},
	{call: "kexec_file_load", amd64: 320, arm64: 294, errno: unix.EPERM, reason: theKernelItself},
	{call: "reboot", amd64: 169, arm64: 142, errno: unix.EPERM, reason: theKernelItself},
	{call: "swapon", amd64: 167, arm64: 224, errno: unix.EPERM, reason: theKernelItself},
	{call: "swapoff", amd64: 168, arm64: 225, errno: unix.EPERM, reason: theKernelItself},
	{call: "acct", amd64: 163, arm64: 89, errno: unix.EPERM, reason: theKernelItself},
	{call: "quotactl", amd64: 179, arm64: 60, errno: unix.EPERM, reason: theKernelItself},
	{call: "quotactl_fd", amd64: 443, arm64: 443, errno: unix.EPERM, reason: theKernelItself},
	{call: "syslog", amd64: 103, arm64: 116, errno: unix.EPERM,
		reason: "the kernel's log tells of the host, and addresses in the kernel"},
}

var newUserNamespace = []condition{{argument: 0, mask: unix.CLONE_NEWUSER, in: []uint32{unix.CLONE_NEWUSER}}}

// setuid holds if a file's mode, in one argument, has the bit.
func setuid(argument int) []condition {
	return []condition{{argument: argument, mask: unix.S_ISUID, in: []uint32{unix.S_ISUID}}}
}

// creates holds if flags of open(2) make a file: without them the mode is whatever was in the register.
func creates(argument int) condition {
	return condition{argument: argument, mask: unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY, notIn: []uint32{0}}
}

const (
	all        = ^uint32(0)
	socketType = 0xf // without SOCK_NONBLOCK and SOCK_CLOEXEC

	// personality(2) takes a number and these bits.
	addressNoRandomize = 0x0040000
	uname26            = 0x0020000
	notHarmless        = ^uint32(addressNoRandomize | uname26)
	personalityLinux   = 0
	personalityLinux32 = 8
	askPersonality     = all & notHarmless // a question, no change

	// Requests of ioctl_console(2) are a byte that says of what, and a number; those of other drivers have a size and a
	// direction above.
	consoleRequests = 0xffffff00
	consoleKeyboard = 0x4b00
	consoleSwitch   = 0x5600

	newMountAPI     = "mounts by new calls, which filters written before them forget; programs fall back to mount"
	ioUring         = "does other calls' work past this filter, and has had more holes than any other part"
	setuidPrograms  = "a program in the workspace that runs as its owner, for whoever outside can reach it"
	keyrings        = "the kernel's keyrings belong to the user, not to the namespace: keys of the host's programs are in them"
	theKernelItself = "the machine's, not a command's; without capabilities it fails anyway, and this is the second lock"
)
