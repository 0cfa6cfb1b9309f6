package dormouse

/*
#include "native.h"
*/
import "C"

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"runtime/cgo"
	"unsafe"
)

// An identity is a certificate with its key. Keys that are bytes are copied to C, which signs faster and without garbage;
// the others stay with their signer.
type identity struct {
	native C.dormouse_identity
	signer cgo.Handle
}

func newIdentity(certificate *tls.Certificate) (*identity, error) {
	switch {
	case len(certificate.Certificate) == 0:
		return nil, errors.New("there is no certificate")
	case certificate.SupportedSignatureAlgorithms != nil:
		return nil, errors.New("SupportedSignatureAlgorithms is not supported")
	case certificate.SignedCertificateTimestamps != nil:
		return nil, errors.New("SignedCertificateTimestamps is not supported")
	}
	var chain []byte
	for _, der := range certificate.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	made := new(identity)
	err := made.make(chain, certificate.PrivateKey)
	if staple := certificate.OCSPStaple; err == nil && staple != nil {
		if err = failed(C.dormouse_identity_staple(made.native, at(staple), C.size_t(len(staple)))); err != nil {
			err = fmt.Errorf("OCSPStaple: %w", err)
		}
	}
	if err != nil {
		made.free()
		return nil, err
	}
	return made, nil
}

func (i *identity) make(chain []byte, key crypto.PrivateKey) error {
	var result C.dormouse_made_identity
	switch key := key.(type) {
	case *ecdsa.PrivateKey, *rsa.PrivateKey, ed25519.PrivateKey:
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return err
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		result = C.dormouse_identity_from_pem(at(chain), C.size_t(len(chain)), at(text), C.size_t(len(text)))
		clear(der)
		clear(text)
	case crypto.Signer:
		i.signer = cgo.NewHandle(key)
		result = C.dormouse_go_identity(at(chain), C.size_t(len(chain)), C.uintptr_t(i.signer))
	default:
		return fmt.Errorf("the private key (%T) is no crypto.Signer", key)
	}
	i.native = result.identity
	return failed(result.result)
}

func (i *identity) free() {
	C.dormouse_identity_free(i.native)
	if i.signer != 0 {
		i.signer.Delete()
	}
}

// hashes of the signature schemes, except for Ed25519, which signs the message itself.
var hashes = map[tls.SignatureScheme]crypto.Hash{
	tls.PKCS1WithSHA256: crypto.SHA256, tls.PKCS1WithSHA384: crypto.SHA384, tls.PKCS1WithSHA512: crypto.SHA512,
	tls.PSSWithSHA256: crypto.SHA256, tls.PSSWithSHA384: crypto.SHA384, tls.PSSWithSHA512: crypto.SHA512,
	tls.ECDSAWithP256AndSHA256: crypto.SHA256, tls.ECDSAWithP384AndSHA384: crypto.SHA384,
	tls.ECDSAWithP521AndSHA512: crypto.SHA512,
}

func sign(signer crypto.Signer, scheme tls.SignatureScheme, message []byte) ([]byte, error) {
	hash, isHashed := hashes[scheme]
	options := crypto.SignerOpts(hash)
	switch scheme {
	case tls.Ed25519:
	case tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512:
		options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	default:
		if !isHashed {
			return nil, fmt.Errorf("unknown signature scheme %v", scheme)
		}
	}
	return crypto.SignMessage(signer, rand.Reader, message, options)
}

// dormouseGoSign returns 0 if the key cannot sign, which fails the handshake.
//
//export dormouseGoSign
func dormouseGoSign(handle C.uintptr_t, scheme C.uint16_t, message *C.uint8_t, messageLen C.size_t, signature *C.uint8_t, room C.size_t) C.size_t {
	var made []byte
	err := isolated("a callback", func() (err error) {
		signer := cgo.Handle(handle).Value().(crypto.Signer)
		made, err = sign(signer, tls.SignatureScheme(scheme), unsafe.Slice((*byte)(message), messageLen))
		return err
	})
	if err != nil || len(made) > int(room) {
		return 0
	}
	return C.size_t(copy(unsafe.Slice((*byte)(signature), room), made))
}
