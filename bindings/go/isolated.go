package dormouse

import "fmt"

// isolated calls a function of the program on a goroutine of its own. It turns a panic, and runtime.Goexit, which
// testing.T.FailNow calls, into an error that says who it was: they must not unwind frames of the library, which may lie
// below.
func isolated(who string, call func() error) error {
	ended := make(chan error, 1)
	go func() {
		var err error
		hasReturned := false
		defer func() {
			if value := recover(); value != nil {
				err = fmt.Errorf("dormouse: %s panicked: %v", who, value)
			} else if !hasReturned {
				err = fmt.Errorf("dormouse: %s called runtime.Goexit", who)
			}
			ended <- err
		}()
		err = call()
		hasReturned = true
	}()
	return <-ended
}
