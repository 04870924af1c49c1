package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// cell is one rate of a price row as the database keeps it.
type cell struct {
	Unit    billing.Unit `json:"unit"`
	Variant string       `json:"variant,omitempty"`
	Amount  string       `json:"amount"`
}

// priceCache has the price rows that are in the database, so that they are not
// written again.
type priceCache struct {
	mu   sync.Mutex
	rows map[string]priceRow // by version
}

// priceRow is a price and the number by which receipts refer to it; 0 if no receipt does yet.
type priceRow struct {
	*billing.Price
	number int64
}

// storePrice adds the row of p, unless it is there. Of a nil Price there is
// nothing to add.
func (b *batch) storePrice(p *billing.Price) error {
	version := p.Version()
	if version == "" || b.db.prices.find(version).Price != nil {
		return nil
	}
	content, err := priceContent(p)
	if err != nil {
		return err
	}
	b.tx.prices = append(b.tx.prices, p) // it may be rolled back: the cache gets it with the commit
	return b.tx.write(b.ctx, "INSERT INTO price (version, content, first_seen) VALUES (?, ?, ?) ON CONFLICT (version) DO NOTHING",
		version, content, b.now)
}

// priceNumber is how receipts name p, whose row it adds if it is not there; 0 for a
// nil Price.
func (b *batch) priceNumber(p *billing.Price) (number int64) {
	version := p.Version()
	known := b.db.prices.find(version)
	if known.number != 0 || version == "" || b.err != nil {
		return known.number
	}
	if b.err = b.storePrice(p); b.err == nil {
		_, b.err = b.tx.find(b.ctx, "SELECT number FROM price WHERE version = ?", []any{version}, &number)
	}
	if b.err == nil && known.Price != nil { // one that is rolled back gives its number to another
		b.db.prices.keep(known.Price, number)
	}
	return number
}

// Price implements [Ledger].
func (db *dbLedger) Price(ctx context.Context, version string) (*billing.Price, error) {
	if version == "" {
		return nil, nil
	}
	if known := db.prices.find(version); known.Price != nil {
		return known.Price, nil
	}
	var content string
	switch found, err := db.find(ctx, "SELECT content FROM price WHERE version = ?", []any{version}, &content); {
	case err != nil:
		return nil, err
	case !found:
		return nil, ledger.ErrNoPrice(version)
	}
	p, err := parsePrice(version, content)
	if err == nil {
		db.prices.keep(p, 0)
	}
	return p, err
}

func priceContent(p *billing.Price) (string, error) {
	cells := []cell{}
	for _, r := range p.Rates() {
		cells = append(cells, cell(r))
	}
	content, err := json.Marshal(cells)
	return string(content), err
}

// parsePrice refuses a row whose content is not that of its version: a charge
// computed from it would be wrong.
func parsePrice(version, content string) (*billing.Price, error) {
	var cells []cell
	err := json.Unmarshal([]byte(content), &cells)
	if err == nil {
		var rates []billing.Rate
		for _, c := range cells {
			rates = append(rates, billing.Rate(c))
		}
		var p *billing.Price
		if p, err = billing.NewPrice(rates...); err == nil && p.Version() == version {
			return p, nil
		}
	}
	return nil, fault.Wrap(fault.InternalError, fmt.Sprintf("The stored price row %.64q is damaged: it is not what its version is the hash of.", version), err)
}

func (c *priceCache) find(version string) priceRow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[version]
}

func (c *priceCache) keep(p *billing.Price, number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows == nil {
		c.rows = make(map[string]priceRow)
	}
	c.rows[p.Version()] = priceRow{p, max(number, c.rows[p.Version()].number)}
}

// PublishPrices stores the price rows of a list that is loaded, and tells the
// processes that share the database which list this one charges by. It is durable
// when it returns.
func (db *DB) PublishPrices(ctx context.Context, list *billing.PriceList) error {
	if !db.dialect.Shared && db.hasPrices(list) { // and no other process to be told
		return nil
	}
	hash := listHash(list)
	err := db.update(ctx, func(b *batch) error {
		for _, model := range list.Models() {
			if err := b.storePrice(list.Price(model)); err != nil {
				return err
			}
		}
		return b.writePriceHash(hash)
	})
	if err == nil {
		db.publishedPrices.Store(&hash)
	}
	return err
}

// hasPrices reports whether every price row of the list is in the database.
func (db *DB) hasPrices(list *billing.PriceList) bool {
	return !slices.ContainsFunc(list.Models(), func(model string) bool {
		version := list.Price(model).Version()
		return version != "" && db.prices.find(version).Price == nil
	})
}

// republishPrices is for a process that others have marked dead: the row that it
// has now does not know the list yet.
func (db *DB) republishPrices(ctx context.Context) error {
	hash := db.publishedPrices.Load()
	if hash == nil || !db.dialect.Shared {
		return nil
	}
	return db.update(ctx, func(b *batch) error { return b.writePriceHash(*hash) })
}

func (b *batch) writePriceHash(hash string) error {
	return b.tx.write(b.ctx, "UPDATE node SET prices = ? WHERE id = ?", hash, b.self)
}

// PricesAgree fails with fault.InvalidRequest when processes that are alive
// charge by different price lists, as for a moment while a new one is rolled
// out. Each request is charged by the list of the process that took it.
func (db *DB) PricesAgree(ctx context.Context) error {
	if !db.dialect.Shared {
		return nil
	}
	var lists int
	_, err := db.find(ctx, "SELECT COUNT(DISTINCT prices) FROM node WHERE prices <> '' AND NOT dead AND lease_until > "+db.dialect.Clock, nil, &lists)
	if err != nil {
		return err
	}
	if lists > 1 {
		return fault.New(fault.InvalidRequest, fmt.Sprintf("The processes that share the database charge by %d different price lists: give all of them the same file.", lists))
	}
	return nil
}

// listHash is the same for lists with the same prices for the same models.
func listHash(list *billing.PriceList) string {
	hash := sha256.New()
	for _, model := range list.Models() {
		_, _ = io.WriteString(hash, fmt.Sprintf("%q %s\n", model, list.Price(model).Version())) // a hash takes everything
	}
	return hex.EncodeToString(hash.Sum(nil))
}
