package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files in the directory of a vendor that speaks TLS.
const certificateFile, keyFile = "certificate.pem", "key.pem"

// certify writes a certificate for loopback, which vouches for itself for a day,
// and its key to a directory.
func certify(dir string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	const private0600 = 0o600
	if err := os.WriteFile(filepath.Join(dir, certificateFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), private0600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), private0600)
}

// tlsConfig is a server's, with the certificate of a directory: it speaks one
// protocol, "h2" or "http/1.1".
func tlsConfig(dir, protocol string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile))
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{protocol}}, err
}

// certificateVariable names the file of the authorities that a process trusts.
const certificateVariable = "SSL_CERT_FILE"
