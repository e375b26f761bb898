package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalColumns asks how wide the terminal behind a file is: 0 when there is
// none.
func terminalColumns(f *os.File) func() int {
	return func() int {
		size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 0
		}
		if size.Col == 0 {
			return 80 // a terminal that does not know
		}
		return int(size.Col)
	}
}
