package suggest

import "testing"

func TestNearestNamesWhatAMisspelledWordMeans(t *testing.T) {
	names := []string{"account", "channels", "check", "key", "rpm", "tpm"}
	for word, want := range map[string]string{
		"acount": "account", "accounts": "account", "chanels": "channels", "chekc": "check", "kye": "key", "tmp": "tpm",
		"account": "account", "colour": "", "zz": "", "": "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
