package sandbox

import "os"

// InsideMain does not return if this process is one of those that a sandbox is made or changed with: what ssh reaches the
// proxy of a filtered network with, and the mounter of a Live sandbox. The program that calls Run with such a plan calls it first
// thing in its main.
func InsideMain() {
	switch {
	case len(os.Args) == 3 && os.Args[0] == insideProgram:
		os.Exit(connectMain(os.Args[1], os.Args[2]))
	case len(os.Args) == 1 && os.Args[0] == mounterName:
		os.Exit(mounterMain())
	}
}
