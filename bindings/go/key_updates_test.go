package dormouse

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A requester is a client that asks for new keys as often as it likes (RFC 8446 section 4.6.3), which crypto/tls does not.
// It only sends.
type requester struct {
	secret   []byte
	sequence uint64
	aead     cipher.AEAD
	iv       []byte
}

func newRequester(t *testing.T, log string) *requester {
	t.Helper()
	for line := range strings.Lines(log) {
		if fields := strings.Fields(line); fields[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(fields[2])
			if err != nil || len(secret) != sha256.Size {
				t.Fatalf("%v: %d bytes", err, len(secret))
			}
			made := &requester{secret: secret}
			made.expand()
			return made
		}
	}
	t.Fatal("no secret was logged")
	return nil
}

func (r *requester) derive(label string, length int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(length))
	label = "tls13 " + label
	info = append(append(append(info, byte(len(label))), label...), 0)
	out, err := hkdf.Expand(sha256.New, r.secret, string(info), length)
	if err != nil {
		panic(err)
	}
	return out
}

func (r *requester) expand() {
	block, _ := aes.NewCipher(r.derive("key", 16))
	r.aead, _ = cipher.NewGCM(block)
	r.iv, r.sequence = r.derive("iv", 12), 0
}

// seal seals a record of this type.
func (r *requester) seal(kind byte, content ...byte) []byte {
	plaintext := append(content, kind)
	header := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(plaintext)+16))
	nonce := binary.BigEndian.AppendUint64(make([]byte, 4), r.sequence)
	for i := range nonce {
		nonce[i] ^= r.iv[i]
	}
	r.sequence++
	return r.aead.Seal(header, nonce, plaintext, header)
}

// request is a KeyUpdate that requests another, and one byte of data.
func (r *requester) request() []byte {
	const handshake, data, keyUpdate, updateRequested = 22, 23, 24, 1
	update := r.seal(handshake, keyUpdate, 0, 0, 1, updateRequested)
	r.secret = r.derive("traffic upd", sha256.Size)
	r.expand()
	return append(update, r.seal(data, 'x')...)
}

// A peer that asks for new keys without end, and reads no answer, is not read any more: answers do not pile up, whether
// another goroutine is stuck in a Write or not.
func TestAnswersThatNobodyReads(t *testing.T) {
	for _, isWriting := range []bool{false, true} {
		serverEnd, clientEnd := tcp(t)
		for _, end := range []net.Conn{serverEnd, clientEnd} {
			end.(*net.TCPConn).SetReadBuffer(4096)
			end.(*net.TCPConn).SetWriteBuffer(4096)
		}
		var log bytes.Buffer
		client := clientSettings()
		client.KeyLogWriter = &log
		server := dormouseStack.server(serverEnd, serverSettings()).(*Conn)
		peer := tls.Client(clientEnd, client)
		if err, errPeer := handshakes(server, peer); err != nil || errPeer != nil {
			t.Fatal(err, errPeer)
		}
		if suite := peer.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
			t.Skip("the suite has another hash: ", tls.CipherSuiteName(suite))
		}
		if isWriting {
			go server.Write(make([]byte, 64<<20))
		}
		var most atomic.Int64
		go func() {
			for buffer := make([]byte, 100); ; {
				if _, err := server.Read(buffer); err != nil {
					return
				}
				most.Store(max(most.Load(), int64(server.answersLen())))
			}
		}()
		requester := newRequester(t, log.String())
		var sent int
		for {
			clientEnd.SetWriteDeadline(time.Now().Add(time.Second))
			count, err := clientEnd.Write(requester.request())
			sent += count
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		clientEnd.Close()
		server.Close()
		const oneRead = 64 * 1024
		if waiting := most.Load(); waiting > answersMax+oneRead {
			t.Errorf("%d bytes of answers wait, after %d bytes of requests", waiting, sent)
		}
		t.Logf("writing: %v: %d bytes were sent until the server stopped reading, %d bytes of answers waited", isWriting, sent, most.Load())
	}
}
