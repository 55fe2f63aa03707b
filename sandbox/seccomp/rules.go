package seccomp

import "golang.org/x/sys/unix"

// table is what no command in a sandbox may ask of the kernel, a row for each call or form of a
// call. What is not here is allowed: ptrace(2) within the sandbox, so that debuggers work;
// seccomp(2), so that programs can have less still.
//
// EPERM is for what a command may be told that it must not do; ENOSYS and the like are for what a
// program tries first and does without where the kernel is older.
var table = []Rule{
	{Call: "ioctl", AMD64: 16, ARM64: 29, Errno: unix.EPERM,
		When:   []Condition{{Argument: 1, Mask: all, In: []uint32{unix.TIOCSTI, unix.TIOCLINUX}}},
		Reason: "TIOCSTI types into the caller's terminal (CVE-2017-5226), TIOCLINUX pastes into a console (CVE-2023-28100)"},
	{Call: "ioctl", AMD64: 16, ARM64: 29, Errno: unix.EPERM,
		When: []Condition{{Argument: 1, Mask: all, In: []uint32{unix.TIOCSETD, unix.TIOCEXCL, unix.TIOCCONS, unix.TIOCVHANGUP,
			unix.TIOCSLCKTRMIOS, unix.TIOCSSERIAL}}},
		Reason: "another line discipline, an exclusive or hung up terminal and locked modes stay with the caller's terminal when the command is gone"},
	{Call: "ioctl", AMD64: 16, ARM64: 29, Errno: unix.EPERM,
		When:   []Condition{{Argument: 1, Mask: consoleRequests, In: []uint32{consoleKeyboard, consoleSwitch}}},
		Reason: "a console's keys, font, screen and switching (ioctl_console(2)): what a key is made to type, the caller types"},

	{Call: "clone", AMD64: 56, ARM64: 220, Errno: unix.EPERM, UnlessNested: true, When: newUserNamespace,
		Reason: "a user namespace brings capabilities, and with them most of the kernel's attack surface"},
	{Call: "unshare", AMD64: 272, ARM64: 97, Errno: unix.EPERM, UnlessNested: true, When: newUserNamespace,
		Reason: "the same by another way"},
	{Call: "clone3", AMD64: 435, ARM64: 435, Errno: unix.ENOSYS, UnlessNested: true,
		Reason: "its flags are in memory, where a filter cannot look; libc falls back to clone"},
	{Call: "setns", AMD64: 308, ARM64: 268, Errno: unix.EPERM, UnlessNested: true,
		Reason: "nobody inside has a namespace to enter"},
	{Call: "mount", AMD64: 165, ARM64: 40, Errno: unix.EPERM, UnlessNested: true,
		Reason: "a remount takes a protection back; without capabilities it fails anyway, and this is a second layer"},
	{Call: "umount2", AMD64: 166, ARM64: 39, Errno: unix.EPERM, UnlessNested: true,
		Reason: "an unmount uncovers what a mask covers; a second layer"},
	{Call: "pivot_root", AMD64: 155, ARM64: 41, Errno: unix.EPERM, UnlessNested: true,
		Reason: "changes what is the root; a second layer"},

	{Call: "open_tree", AMD64: 428, ARM64: 428, Errno: unix.ENOSYS, Reason: newMountAPI},
	{Call: "open_tree_attr", AMD64: 467, ARM64: 467, Errno: unix.ENOSYS, Reason: newMountAPI},
	{Call: "move_mount", AMD64: 429, ARM64: 429, Errno: unix.ENOSYS, Reason: newMountAPI},
	{Call: "fsopen", AMD64: 430, ARM64: 430, Errno: unix.ENOSYS, Reason: newMountAPI},
	{Call: "fsconfig", AMD64: 431, ARM64: 431, Errno: unix.ENOSYS, Reason: newMountAPI},
	{Call: "fsmount", AMD64: 432, ARM64: 432, Errno: unix.ENOSYS, Reason: newMountAPI},
	{Call: "fspick", AMD64: 433, ARM64: 433, Errno: unix.ENOSYS, Reason: newMountAPI},
	{Call: "mount_setattr", AMD64: 442, ARM64: 442, Errno: unix.ENOSYS, Reason: newMountAPI},
	{Call: "open_by_handle_at", AMD64: 304, ARM64: 265, Errno: unix.EPERM,
		Reason: "opens a file by its number, past every mount (the \"shocker\" way out of early containers)"},

	{Call: "io_uring_setup", AMD64: 425, ARM64: 425, Errno: unix.EPERM, Reason: ioUring},
	{Call: "io_uring_enter", AMD64: 426, ARM64: 426, Errno: unix.EPERM, Reason: ioUring},
	{Call: "io_uring_register", AMD64: 427, ARM64: 427, Errno: unix.EPERM, Reason: ioUring},
	{Call: "bpf", AMD64: 321, ARM64: 280, Errno: unix.EPERM,
		Reason: "programs for the kernel: its verifier has been fooled again and again"},
	{Call: "perf_event_open", AMD64: 298, ARM64: 241, Errno: unix.EPERM,
		Reason: "a large and often broken interface that also measures other processes"},
	{Call: "userfaultfd", AMD64: 323, ARM64: 282, Errno: unix.EPERM,
		Reason: "stops the kernel in the middle of a copy, which turns its races into certainties"},

	{Call: "keyctl", AMD64: 250, ARM64: 219, Errno: unix.EPERM, Reason: keyrings},
	{Call: "add_key", AMD64: 248, ARM64: 217, Errno: unix.EPERM, Reason: keyrings},
	{Call: "request_key", AMD64: 249, ARM64: 218, Errno: unix.EPERM, Reason: keyrings},

	{Call: "socket", AMD64: 41, ARM64: 198, Errno: unix.EAFNOSUPPORT,
		When:   []Condition{{Argument: 0, Mask: all, NotIn: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}}},
		Reason: "other families are for special hardware, and load modules; vsock reaches the machine's host through any network namespace"},
	{Call: "socket", AMD64: 41, ARM64: 198, Errno: unix.EPROTONOSUPPORT,
		When: []Condition{
			{Argument: 0, Mask: all, In: []uint32{unix.AF_NETLINK}},
			{Argument: 2, Mask: all, NotIn: []uint32{unix.NETLINK_ROUTE}}},
		Reason: "libc needs netlink for addresses only; the others show the host's sockets and devices, or set up its filters"},
	{Call: "socket", AMD64: 41, ARM64: 198, Errno: unix.ESOCKTNOSUPPORT,
		When: []Condition{
			{Argument: 0, Mask: all, In: []uint32{unix.AF_INET, unix.AF_INET6}},
			{Argument: 1, Mask: socketType, NotIn: []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW}}},
		Reason: "SCTP and DCCP: modules that nobody has loaded, with a history of holes"},
	{Call: "socket", AMD64: 41, ARM64: 198, Errno: unix.EPROTONOSUPPORT,
		When: []Condition{
			{Argument: 0, Mask: all, In: []uint32{unix.AF_INET, unix.AF_INET6}},
			{Argument: 2, Mask: all, NotIn: []uint32{0, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6, unix.IPPROTO_MPTCP}}},
		Reason: "the same by their protocol's number"},

	{Call: "personality", AMD64: 135, ARM64: 92, Errno: unix.EPERM,
		When:   []Condition{{Argument: 0, Mask: notHarmless, NotIn: []uint32{personalityLinux, personalityLinux32, askPersonality}}},
		Reason: "other personalities bring old behaviour back that exploits want; a debugger may turn address randomization off"},
	{Call: "chmod", AMD64: 90, ARM64: None, Errno: unix.EPERM, When: setuid(1), Reason: setuidPrograms},
	{Call: "fchmod", AMD64: 91, ARM64: 52, Errno: unix.EPERM, When: setuid(1), Reason: setuidPrograms},
	{Call: "fchmodat", AMD64: 268, ARM64: 53, Errno: unix.EPERM, When: setuid(2), Reason: setuidPrograms},
	{Call: "fchmodat2", AMD64: 452, ARM64: 452, Errno: unix.EPERM, When: setuid(2), Reason: setuidPrograms},
	{Call: "creat", AMD64: 85, ARM64: None, Errno: unix.EPERM, When: setuid(1), Reason: setuidPrograms},
	{Call: "open", AMD64: 2, ARM64: None, Errno: unix.EPERM, When: append(setuid(2), creates(1)), Reason: setuidPrograms},
	{Call: "openat", AMD64: 257, ARM64: 56, Errno: unix.EPERM, When: append(setuid(3), creates(2)), Reason: setuidPrograms},
	{Call: "openat2", AMD64: 437, ARM64: 437, Errno: unix.ENOSYS, Reason: "its mode is in memory, where a filter cannot look; programs fall back to openat"},
	{Call: "mknod", AMD64: 133, ARM64: None, Errno: unix.EPERM, When: setuid(1), Reason: setuidPrograms},
	{Call: "mknodat", AMD64: 259, ARM64: 33, Errno: unix.EPERM, When: setuid(2), Reason: setuidPrograms},

	{Call: "modify_ldt", AMD64: 154, ARM64: None, Errno: unix.EPERM,
		Reason: "16-bit segments: only old exploits and Windows programs want them"},
	{Call: "uselib", AMD64: 134, ARM64: None, Errno: unix.ENOSYS, Reason: "no program has used it for decades"},

	{Call: "init_module", AMD64: 175, ARM64: 105, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "finit_module", AMD64: 313, ARM64: 273, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "delete_module", AMD64: 176, ARM64: 106, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "kexec_load", AMD64: 246, ARM64: 104, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "kexec_file_load", AMD64: 320, ARM64: 294, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "reboot", AMD64: 169, ARM64: 142, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "swapon", AMD64: 167, ARM64: 224, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "swapoff", AMD64: 168, ARM64: 225, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "acct", AMD64: 163, ARM64: 89, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "quotactl", AMD64: 179, ARM64: 60, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "quotactl_fd", AMD64: 443, ARM64: 443, Errno: unix.EPERM, Reason: theKernelItself},
	{Call: "syslog", AMD64: 103, ARM64: 116, Errno: unix.EPERM,
		Reason: "the kernel's log tells of the host, and addresses in the kernel"},
}

var newUserNamespace = []Condition{{Argument: 0, Mask: unix.CLONE_NEWUSER, In: []uint32{unix.CLONE_NEWUSER}}}

// setuid holds if a file's mode, in one argument, has the bit.
func setuid(argument int) []Condition {
	return []Condition{{Argument: argument, Mask: unix.S_ISUID, In: []uint32{unix.S_ISUID}}}
}

// creates holds if flags of open(2) make a file: without them the mode is whatever was in the
// register.
func creates(argument int) Condition {
	return Condition{Argument: argument, Mask: unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY, NotIn: []uint32{0}}
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

	// Requests of ioctl_console(2) are a byte that says of what, and a number; those of other
	// drivers have a size and a direction above.
	consoleRequests = 0xffffff00
	consoleKeyboard = 0x4b00
	consoleSwitch   = 0x5600

	newMountAPI     = "mounts by new calls, which filters written before them forget; programs fall back to mount"
	ioUring         = "does other calls' work past this filter, and has had more holes than any other part"
	setuidPrograms  = "a program in the workspace that runs as its owner, for whoever outside can reach it"
	keyrings        = "the kernel's keyrings belong to the user, not to the namespace: keys of the host's programs are in them"
	theKernelItself = "the machine's, not a command's; without capabilities it fails anyway, and this is a second layer"
)
