package policy

// languageRefusal says why a program of a small language is not known to be harmless, or nothing.
func languageRefusal(language, text string) string {
	switch language {
	case "sed":
		return sedRefusal(text)
	case "awk":
		return awkRefusal(text)
	case "jq":
		return jqRefusal(text)
	}
	return "is of a language that is not known"
}
