package files

// Targets are the paths at which a request would make or change files, as they are written:
// absolute, and no link on the way is followed. There are none of a request that makes no sense.
func Targets(r Request, cwd string) []string {
	var list []string
	add := func(paths ...string) {
		for _, path := range paths {
			if at, err := absolute(cwd, path); err == nil {
				list = append(list, at)
			}
		}
	}
	switch {
	case r.Write != nil:
		add(r.Write.Path)
	case r.Edit != nil:
		add(r.Edit.Path)
	case r.ApplyPatch != nil:
		changes, err := parsePatch(r.ApplyPatch.Patch)
		if err != nil {
			return nil
		}
		for _, c := range changes {
			if c.kind != deleteFile {
				add(c.path, c.moveTo)
			}
		}
	}
	return list
}
