package policy

// languageRefusal says why a program of a small language is not known to be harmless, or nothing.
func languageRefusal(language, text string) string {
	if swallows(text) {
		return "has letters that other encodings read otherwise"
	}
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

// swallows says whether in an encoding of two bytes a letter (GBK, Big5, Shift-JIS), which a
// variable could choose, a sign of the language could be the second half of a letter: a backslash
// or a bracket would be gone.
func swallows(text string) bool {
	for i := 1; i < len(text); i++ {
		if text[i-1] >= 0x80 && text[i] >= 0x40 && text[i] < 0x7f {
			return true
		}
	}
	return false
}
