// Package files is the file tools of an agent: read, write, edit, apply_patch, glob, grep.
//
// They run inside the sandbox, as a program that takes one request on its standard input and writes
// one response to its standard output. So they see what a command sees, by the same mounts; a path
// needs no checking, and whoever swaps a symbolic link in the middle gains what a command could
// have had without it. Nothing here decides what may be seen.
//
// The program is whichever executes the sandbox, or another that was built with this package, shown
// inside at Place:
//
//	place := plan.ShowProgram("files", "")            // on the host, once a plan
//	if len(os.Args) == 1 && os.Args[0] == files.Place // first thing in main
//	        os.Exit(files.Program(os.Stdin, os.Stdout))
//
// What comes out is as trustworthy as any output of the sandbox, where another process may have its
// hand in it: Decode bounds it and takes nothing for granted.
//
// Every tool is bounded in what it reads, in what it returns and in time; patterns are RE2, whose
// time is linear. Text is UTF-8: other bytes in what is read come out as U+FFFD, and stay as they
// are in what is edited. Devices and pipes are never opened.
package files
