"""Finds circles between the modules of Rust crates: `python tests/circles.py crates/…`.

A module imports a file when it names something that stands there. Re-exports are followed to the file
that has the definition, so that a parent with nothing but `mod` and `pub use` lines takes part in no circle.
Modules inside of a file (`mod tests`) count as that file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

Module = tuple[str, ...]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_STRING = re.compile(r'r#*".*?"#*|"(?:\\.|[^"\\])*"', re.S)
_USE = re.compile(r"(?:^|\s)((?:pub(?:\([^)]*\))?\s+)?)use\s+([^;]+);")
_PATH = re.compile(r"\b((?:crate|super|self)(?:::\w+)+)")


class Crate:
    """The modules of a crate that have a file of their own, and what each imports."""

    def __init__(self, root: Path) -> None:
        source = root / "src"
        self.text: dict[Module, str] = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if parts[0] in ("bin", "main"):
                continue
            module = parts[:-1] if parts[-1] in ("lib", "mod") else parts
            self.text[module] = _STRING.sub('""', _COMMENT.sub("", path.read_text()))
        self.exports = {module: dict(self._exported(module)) for module in self.text}
        self.imports = {module: self._imported(module) for module in self.text}

    def _exported(self, module: Module) -> list[tuple[str, Module]]:
        """Names that a module's `use` lines bring into it, and the paths behind them."""
        return [
            (name, self._absolute(module, path))
            for _, tree in _USE.findall(self.text[module])
            for name, path in _flatten(tree)
            if path[0] in ("crate", "super", "self") or (*module, path[0]) in self.text
        ]

    def _absolute(self, module: Module, path: Module) -> Module:
        at, rest = module, list(path)
        while rest and rest[0] in ("crate", "self", "super"):
            step = rest.pop(0)
            at = () if step == "crate" else at[:-1] if step == "super" else at
        return (*at, *rest)

    def _home(self, path: Module, seen: frozenset[Module] = frozenset()) -> Module | None:
        """The file that defines what `path` names."""
        if path in self.text or path in seen:
            return path if path in self.text else None
        for length in range(len(path) - 1, -1, -1):
            parent = path[:length]
            if parent not in self.text:
                continue
            target = self.exports[parent].get(path[length])
            if target and target != path:
                return self._home((*target, *path[length + 1 :]), seen | {path})
            return parent
        return None

    def _imported(self, module: Module) -> set[Module]:
        text = re.split(r"#\[cfg\(test\)\]\s*mod\s+\w+\s*\{", self.text[module])[0]
        reexported = re.sub(r"pub(?:\([^)]*\))?\s+use\s+[^;]+;", "", text)
        paths = [path for _, tree in _USE.findall(reexported) for _, path in _flatten(tree)]
        plain = _USE.sub("", reexported)
        paths += [tuple(found.split("::")) for found in _PATH.findall(plain)]
        for child in {m[len(module)] for m in self.text if len(m) == len(module) + 1 and m[: len(module)] == module}:
            paths += [tuple(found.split("::")) for found in re.findall(rf"\b({child}(?:::\w+)+)", plain)]
        homes = {
            self._home(self._absolute(module, path))
            for path in paths
            if path[0] in ("crate", "super", "self") or (*module, path[0]) in self.text
        }
        return {home for home in homes if home is not None and home != module}


def _flatten(tree: str) -> list[tuple[str, Module]]:
    """`a::{b, c as d}` as [("b", (a, b)), ("d", (a, c))]; a glob stands for its parent."""
    found: list[tuple[str, Module]] = []

    def walk(text: str, prefix: Module) -> None:
        depth, start, parts = 0, 0, []
        for at, sign in enumerate(text):
            depth += (sign == "{") - (sign == "}")
            if sign == "," and depth == 0:
                parts.append(text[start:at])
                start = at + 1
        for part in (*parts, text[start:]):
            part = part.strip()
            head, brace, inside = part.partition("{")
            if brace:
                walk(inside.rstrip().removesuffix("}"), (*prefix, *(s for s in head.split("::") if s.strip())))
            elif part:
                path, _, alias = part.partition(" as ")
                steps = (*prefix, *(s.strip() for s in path.split("::")))
                steps = steps[:-1] if steps[-1] in ("*", "self") else steps
                if steps:
                    found.append((alias.strip() or steps[-1], steps))

    walk(" ".join(tree.split()), ())
    return found


def circles(imports: dict[Module, set[Module]]) -> list[list[Module]]:
    """The strongly connected components with more than one module (Tarjan 1972)."""
    index: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    found: list[list[Module]] = []

    def visit(module: Module) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(imports):
        if module not in index:
            visit(module)
    return found


def main(roots: list[str]) -> int:
    """Prints each circle with its imports; 1 where there is one."""
    bad = 0
    for root in roots:
        crate = Crate(Path(root))
        for circle in circles(crate.imports):
            bad += 1
            print(f"{root}: {len(circle)} modules import each other in a circle:")
            for module in circle:
                inside = ", ".join("::".join(m) or "lib" for m in sorted(crate.imports[module] & set(circle)))
                print(f"    {'::'.join(module) or 'lib'} imports {inside}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
