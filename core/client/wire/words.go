package wire

// WaitText says what a run waits for, where the reason it is parked for does
// not say it by itself.
func WaitText(reason string) (text string, ok bool) {
	switch reason {
	case "unknown":
		return "an answer whether a call happened", true
	case "backoff":
		return "the model", true
	case "held":
		return "a build that can go on with it", true
	}
	return "", false
}
