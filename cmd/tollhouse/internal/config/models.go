package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
)

// Price is one model's price row.
type Price struct {
	Pos   Pos
	Rates []billing.Rate // as written
	Row   *billing.Price
}

// Prices are the price rows by public model id.
type Prices map[string]Price

// decode implements decodable. Each cell is checked by itself, so that a problem has the
// cell's position.
func (rows *Prices) decode(d *decoder, n ast.Node, name string) {
	*rows = make(Prices)
	for _, model := range d.pairs(n, name, "") {
		(*rows)[model.key] = d.price(model)
	}
}

// price reads one row. An empty one is refused, since it would make the model free without
// a word of it.
func (d *decoder) price(model pair) Price {
	p := Price{Pos: model.at}
	before := len(d.problems)
	cells := d.pairs(model.value, "the price of "+model.key, `, for example {input: "0.60", output: "2.50"}`)
	if len(cells) == 0 && len(d.problems) == before {
		d.problems.add(model.at, "the price of %s is empty; a free model has the price {input: \"0\"}", model.key)
	}
	for _, cell := range cells {
		switch d.resolve(cell.value).(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			for _, variant := range d.pairs(cell.value, cell.key, "") {
				p.Rates = append(p.Rates, d.rate(cell.key, variant.key, variant)...)
			}
		default:
			p.Rates = append(p.Rates, d.rate(cell.key, "", cell)...)
		}
	}
	row, err := billing.NewPrice(p.Rates...)
	if err != nil {
		d.problems.add(model.at, "%v", err)
	}
	p.Row = row
	return p
}

// rate reads one decimal; a wrong one gives none.
func (d *decoder) rate(unit, variant string, from pair) []billing.Rate {
	amount, ok := d.text(from.value, from.key, nil, reflect.Value{})
	if !ok {
		return nil
	}
	rate := billing.Rate{Unit: billing.Unit(unit), Variant: variant, Amount: amount}
	if _, err := billing.NewPrice(rate); err != nil {
		at := position(from.value)
		if strings.HasPrefix(err.Error(), "unknown price unit") {
			at = from.at
		}
		d.problems.add(at, "%v", err)
		return nil
	}
	return []billing.Rate{rate}
}

// Model is what the file says of a model: its fields are those of [gateway.Model].
type Model struct {
	ID         string
	Kind       gateway.Kind      `yaml:"kind,kind"`
	MaxOutput  int64             `yaml:"max_output"`
	HoldTokens int64             `yaml:"hold_tokens"`
	Batch      int               `yaml:"batch,batch"`
	Dimensions []int64           `yaml:"dimensions" example:"[256, 1024]"`
	Voices     []string          `yaml:"voices" example:"[alloy, echo]"`
	Ratios     []string          `yaml:"ratios,ratio" example:"[\"16:9\", \"9:16\"]"`
	Priorities []string          `yaml:"priorities" example:"[low]"`
	Withdrawn  time.Time         `yaml:"withdrawn,date"`
	Reasoning  gateway.Reasoning `yaml:"reasoning,reasoning"`
	Affinity   gateway.Affinity  `yaml:"affinity,affinity"`
}

// facts are the model's, as the gateway takes them.
func (m *Model) facts() gateway.Model {
	return gateway.Model{
		ID: m.ID, Kind: m.Kind, MaxOutput: m.MaxOutput, HoldTokens: m.HoldTokens, Batch: m.Batch, Dimensions: m.Dimensions, Voices: m.Voices,
		Ratios: m.Ratios, Priorities: m.Priorities, Withdrawn: m.Withdrawn, Reasoning: m.Reasoning, Affinity: m.Affinity,
	}
}

// Models are what the file says of models, in its order.
type Models []Model

// decode implements decodable.
func (models *Models) decode(d *decoder, n ast.Node, name string) {
	for _, p := range d.pairs(n, name, "") {
		m := Model{ID: p.key}
		d.object(p.value, "a model", reflect.ValueOf(&m).Elem(), nil)
		*models = append(*models, m)
	}
}

// decode reads an item of accounts.
func (a *Account) decode(d *decoder, n ast.Node, _ string) {
	d.object(n, "an account", reflect.ValueOf(a).Elem(), nil)
}

// Key is a key that the file owns.
type Key struct {
	Pos    Pos
	Name   string   `yaml:"name"`
	Models []string `yaml:"models" example:"[my-model]"`
	auth.Limits
	Hash [32]byte
}

// keyForms is what an item of an account's keys may be.
const keyForms = `a key needs one of env and hash: write {env: NAME}, where the environment variable NAME holds it, or {hash: "sha256:…"}, and never the key itself`

// decode implements decodable: the variable that holds the key, or its hash.
func (k *Key) decode(d *decoder, n ast.Node, _ string) {
	k.Pos = position(d.resolve(n))
	if _, single := scalar(d.resolve(n)); single {
		d.problems.add(k.Pos, keyForms)
		return
	}
	given := 0
	source := func(parse func(string) ([32]byte, error)) func(ast.Node, string) {
		return func(n ast.Node, name string) {
			given++
			d.single(n, name, into(parse), reflect.ValueOf(&k.Hash).Elem())
		}
	}
	before := len(d.problems)
	d.object(n, "a key", reflect.ValueOf(k).Elem(), special{"env": source(d.hashOfVariable), "hash": source(parseHash)})
	if given > 1 || given == 0 && len(d.problems) == before {
		d.problems.add(k.Pos, keyForms)
	}
}

// hashOfVariable is the hash of the key in a variable: of a key of an account nothing else
// is kept.
func (d *decoder) hashOfVariable(name string) ([32]byte, error) {
	value, err := d.variable(name)
	if err == nil && (len(value) < 20 || !strings.HasPrefix(value, "sk-")) {
		err = fmt.Errorf("the environment variable %s does not hold a key: one begins with sk- and has at least 20 characters", name)
	}
	if err != nil {
		return [32]byte{}, err
	}
	return auth.HashOf(value), nil
}
