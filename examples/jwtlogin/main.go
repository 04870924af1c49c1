// Command jwtlogin lets callers in by the tokens of a login. The identity provider is played here;
// a real one needs its Issuer alone.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth/jwt"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/server"
)

func main() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	provider := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "1", Algorithm: "ES256"}}}
	at := httptest.NewServer(provider)
	defer at.Close()
	provider.SetIssuer(at.URL)

	login, err := jwt.New(context.Background(), jwt.Options{
		Issuer: at.URL, Audience: "shop", // tokens for other services are refused
		Claims: jwt.Claims{Account: "org", Name: "email"},
	})
	if err != nil {
		log.Fatal(err)
	}
	up, err := vendor.New()
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: up, Authenticator: login})
	if err != nil {
		log.Fatal(err)
	}
	client := server.Client(server.New(g, server.Options{})) // as a browser would, but without a socket
	for _, audience := range []string{"shop", "another-service"} {
		claims := fmt.Sprintf(`{"iss":%q,"aud":%q,"exp":%d,"sub":"ann","org":"acme"}`, at.URL, audience, time.Now().Add(time.Hour).Unix())
		fmt.Println(audience, ask(client, oidctest.SignIDToken(key, "1", "ES256", claims)))
	}
}

// ask makes a call with a token and returns the status.
func ask(client *http.Client, token string) int {
	r, err := http.NewRequest(http.MethodPost, "http://gateway/v1/chat/completions",
		strings.NewReader(`{"model":"`+vendor.Model()+`","messages":[{"role":"user","content":"Hello."}]}`))
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode
}

// Output:
// shop 200
// another-service 401
