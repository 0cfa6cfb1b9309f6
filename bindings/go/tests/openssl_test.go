package tests

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// OpenSSL's client updates its keys, and demands an update of ours ("K" and "k" at the start of a line).
func TestOpenSSLUpdatesItsKeys(t *testing.T) {
	s := newSite(t)
	listener := s.serve(t, func(conn net.Conn) { io.Copy(conn, conn) })
	client := exec.Command("openssl", "s_client", "-connect", listener.Addr().String(), "-CAfile", s.certificate, "-servername", "localhost")
	input, _ := client.StdinPipe()
	output, _ := client.StdoutPipe()
	client.Stderr = client.Stdout
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	defer client.Wait()
	defer client.Process.Kill()
	lines := bufio.NewScanner(output)
	say := func(line, answer string) {
		t.Helper()
		io.WriteString(input, line+"\n")
		for lines.Scan() {
			if strings.HasSuffix(lines.Text(), answer) {
				return
			}
		}
		t.Fatalf("%q is not answered", line)
	}
	say("hello", "hello")
	// OpenSSL says that it has done it. A line that arrives with the command is a part of it.
	for _, command := range []string{"K", "k"} {
		say(command, "KEYUPDATE")
		say("after "+command, "after "+command)
	}
}
