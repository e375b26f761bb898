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

// untilUnread returns once the other end of a pipe or a terminal is gone. For a
// file, which is always there, it does not return.
func untilUnread(f *os.File) {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}} // nothing is asked for: only that it broke
	for {
		n, err := unix.Poll(fds, -1)
		switch {
		case n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
			return
		case err != nil && err != unix.EINTR, n > 0:
			select {} // nobody can tell
		}
	}
}
