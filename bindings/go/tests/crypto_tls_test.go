package tests

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCryptoTLS runs the tests of crypto/tls that use only what is exported, from the source of this toolchain, with
// this package in place of crypto/tls. ../suites.tsv names the others, with reasons.
//
// CRYPTO_TLS=all tries them all, and prints what becomes of each: for a new version of Go.
func TestCryptoTLS(t *testing.T) {
	source := readSource(t)
	isAll := os.Getenv("CRYPTO_TLS") == "all"
	impossible := map[string]string{}
	if !isAll {
		impossible = cannotPass(t, "crypto/tls")
	}
	wanted := slices.DeleteFunc(source.tests(), func(name string) bool { return impossible[name] != "" })
	folder := t.TempDir()
	for name, reason := range source.extract(t, folder, &wanted) {
		if !isAll {
			t.Error(name, reason)
		}
		t.Logf("%s\t%s", name, reason)
	}
	t.Logf("%d tests of crypto/tls", len(wanted))
	program := filepath.Join(folder, "tests")
	for _, name := range wanted {
		t.Run(name, func(t *testing.T) {
			run := exec.Command(program, "-test.run=^"+name+"$", "-test.timeout=60s")
			run.Dir = folder
			if output, err := run.CombinedOutput(); err != nil {
				t.Error(err, string(output))
			}
		})
	}
}

// cannotPass reads the cases of a suite that cannot pass, and why.
func cannotPass(t *testing.T, suite string) map[string]string {
	content, err := os.ReadFile("../suites.tsv")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); columns[0] == suite {
			found[columns[1]] = columns[2]
		}
	}
	return found
}

// A source is the package's tests: each declaration by its name, with the imports of its file.
type source struct {
	files        *token.FileSet
	declarations map[string][]declaration
	exported     []string // names of the package itself, with their kind: `type Config`
}

type declaration struct {
	node ast.Node // a function, or a GenDecl of one specification
	file *ast.File
}

// ours are names that testdata/crypto_tls.go.txt declares in place of crypto/tls or of its tests.
var ours = []string{"Conn", "Client", "Server", "NewListener", "Listen", "Dial", "DialWithDialer", "Dialer", "TestMain", "testConfig",
	"runWithFIPSEnabled", "runWithFIPSDisabled"}

func readSource(t *testing.T) source {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("go env:", err)
	}
	read := source{files: token.NewFileSet(), declarations: map[string][]declaration{}}
	names, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), "src/crypto/tls/*.go"))
	if len(names) == 0 {
		t.Skip("this toolchain has no source of crypto/tls")
	}
	for _, name := range names {
		file, err := parser.ParseFile(read.files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !strings.HasSuffix(name, "_test.go"):
			read.addExported(file)
		case file.Name.Name == "tls":
			read.addTests(file)
		}
	}
	return read
}

func (s *source) addExported(file *ast.File) {
	add := func(kind string, name *ast.Ident) {
		if name.IsExported() && !slices.Contains(ours, name.Name) {
			s.exported = append(s.exported, kind+" "+name.Name)
		}
	}
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.FuncDecl:
			if declared.Recv == nil {
				add("var", declared.Name)
			}
		case *ast.GenDecl:
			for _, specification := range declared.Specs {
				switch specification := specification.(type) {
				case *ast.TypeSpec:
					add("type", specification.Name)
				case *ast.ValueSpec:
					for _, name := range specification.Names {
						add(declared.Tok.String(), name)
					}
				}
			}
		}
	}
}

func (s *source) addTests(file *ast.File) {
	add := func(name string, node ast.Node) {
		if !slices.Contains(ours, name) {
			s.declarations[name] = append(s.declarations[name], declaration{node, file})
		}
	}
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.FuncDecl:
			name := declared.Name.Name
			if declared.Recv != nil { // a method comes with its type
				of := declared.Recv.List[0].Type
				if pointer, ok := of.(*ast.StarExpr); ok {
					of = pointer.X
				}
				name = fmt.Sprint(of)
			}
			add(name, declared)
		case *ast.GenDecl:
			for _, specification := range declared.Specs {
				var node ast.Node = &ast.GenDecl{Tok: declared.Tok, Specs: []ast.Spec{specification}}
				switch specification := specification.(type) {
				case *ast.TypeSpec:
					add(specification.Name.Name, node)
				case *ast.ValueSpec:
					if declared.Tok == token.CONST && len(declared.Specs) > 1 {
						node = declared // values may follow from those before
					}
					for _, name := range specification.Names {
						add(name.Name, node)
					}
				}
			}
		}
	}
}

func (s *source) tests() []string {
	var names []string
	for name := range s.declarations {
		if strings.HasPrefix(name, "Test") && !slices.Contains(ours, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// needs returns the names of declarations that one needs, itself included.
func (s *source) needs(name string, found map[string]bool) {
	if found[name] || s.declarations[name] == nil {
		return
	}
	found[name] = true
	for _, declared := range s.declarations[name] {
		ast.Inspect(declared.node, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok {
				ast.Inspect(selector.X, func(node ast.Node) bool {
					if name, ok := node.(*ast.Ident); ok {
						s.needs(name.Name, found)
					}
					return true
				})
				return false
			}
			if name, ok := node.(*ast.Ident); ok {
				s.needs(name.Name, found)
			}
			return true
		})
	}
}

var compilerError = regexp.MustCompile(`(?m)^\./(own_\w+_test\.go):(\d+):\d+: (.*)$`)

// extract writes these tests with what they need as a module, and compiles it. Tests that need what is not exported are
// taken from the list and returned, with the first name that is missing.
func (s *source) extract(t *testing.T, folder string, wanted *[]string) map[string]string {
	s.writeModule(t, folder)
	missing := map[string]string{}
	for {
		names := map[string]bool{}
		for _, name := range []string{"testRSA2048Certificate", "testRSA2048PrivateKey", "localListener", "localServer", "localPipe"} {
			s.needs(name, names)
		}
		for _, test := range *wanted {
			s.needs(test, names)
		}
		lines := s.writeTests(t, folder, names)
		build := exec.Command("go", "test", "-c", "-vet=off", "-gcflags=-e", "-o", "tests", ".")
		build.Dir = folder
		output, err := build.CombinedOutput()
		if err == nil {
			return missing
		}
		wrong := map[string]string{}
		for _, found := range compilerError.FindAllStringSubmatch(string(output), -1) {
			line, _ := strconv.Atoi(found[2])
			if name := lines[found[1]][line-1]; wrong[name] == "" {
				wrong[name] = found[3]
			}
		}
		if len(wrong) == 0 {
			t.Fatal(string(output))
		}
		*wanted = slices.DeleteFunc(*wanted, func(test string) bool {
			uses := map[string]bool{}
			s.needs(test, uses)
			for name, reason := range wrong {
				if uses[name] {
					missing[test] = reason
				}
			}
			return missing[test] != ""
		})
	}
}

func (s *source) writeModule(t *testing.T, folder string) {
	library, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	module := "module crypto.example/tls\n\ngo 1.25.0\n\nrequire dormouse.example/dormouse v0.0.0\n\nreplace dormouse.example/dormouse => " + library + "\n"
	names := "package tls\n\nimport \"crypto/tls\"\n\n"
	for _, one := range s.exported {
		kind, name, _ := strings.Cut(one, " ")
		names += fmt.Sprintf("%s %s = tls.%s\n", kind, name, name)
	}
	shim, err := os.ReadFile("testdata/crypto_tls.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": module, "names_test.go": names, "shim_test.go": string(shim)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// writeTests writes these declarations to files as theirs, and returns for each file and line whose declaration it is.
func (s *source) writeTests(t *testing.T, folder string, names map[string]bool) map[string][]string {
	before, _ := filepath.Glob(filepath.Join(folder, "own_*"))
	for _, name := range before {
		os.Remove(name)
	}
	code, written := map[*ast.File]*bytes.Buffer{}, map[ast.Node]bool{}
	uses := map[*ast.File]map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, declared := range s.declarations[name] {
			if written[declared.node] {
				continue
			}
			written[declared.node] = true
			if code[declared.file] == nil {
				code[declared.file], uses[declared.file] = new(bytes.Buffer), map[string]bool{}
			}
			ast.Inspect(declared.node, func(node ast.Node) bool {
				if selector, ok := node.(*ast.SelectorExpr); ok {
					if of, ok := selector.X.(*ast.Ident); ok {
						uses[declared.file][of.Name] = true
					}
				}
				return true
			})
			fmt.Fprintf(code[declared.file], "// of %s\n", name)
			if err := printer.Fprint(code[declared.file], s.files, declared.node); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(code[declared.file], "\n\n")
		}
	}
	lines := map[string][]string{}
	for file := range code {
		name := "own_" + filepath.Base(s.files.Position(file.Pos()).Filename)
		all, err := format.Source(append(imports(file, uses[file]), code[file].Bytes()...))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), all, 0o600); err != nil {
			t.Fatal(err)
		}
		of := ""
		for line := range strings.Lines(string(all)) {
			if name, ok := strings.CutPrefix(line, "// of "); ok {
				of = strings.TrimSpace(name)
			}
			lines[name] = append(lines[name], of)
		}
	}
	return lines
}

// imports are those of a file's that are used, except for internal packages and those that come with Go.
func imports(file *ast.File, used map[string]bool) []byte {
	var head bytes.Buffer
	fmt.Fprint(&head, "package tls\n\nimport (\n")
	for _, one := range file.Imports {
		path, _ := strconv.Unquote(one.Path.Value)
		name := filepath.Base(path)
		if one.Name != nil {
			name = one.Name.Name
		}
		if used[name] && !strings.Contains(path, "internal") && !strings.Contains(path, ".") {
			fmt.Fprintf(&head, "\t%s %q\n", name, path)
		}
	}
	fmt.Fprint(&head, ")\n\n")
	return head.Bytes()
}
