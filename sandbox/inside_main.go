package sandbox

import "os"

// InsideMain does not return if this process was started, in a sandbox, as the program by which ssh
// reaches the proxy of a filtered network. A program that calls Run with such a plan calls
// InsideMain first thing in its main.
func InsideMain() {
	if len(os.Args) == 3 && os.Args[0] == insideProgram {
		os.Exit(connectMain(os.Args[1], os.Args[2]))
	}
}
