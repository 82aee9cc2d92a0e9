#!/usr/bin/env python3
"""Write simple children's tales without end, each one coherent from its first word to its last.

    python tales.py --count 3 --seed 7

A tale is a plot of plots.txt: a row of beats, each said in one of several ways, with words from words.txt.  What the
sentences share is kept as state: people (kind, name, he or she, home, food, whether they were introduced), the thing
that is lost, packed or shared, the season, the places.  A row of a table is drawn when it is first named and stays for
the whole tale, so that what was packed in the beginning helps in the end.  Somebody new comes in as "a fox", and is
"the fox" or a name later.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

HERE = Path(__file__).parent
LISTS = ("home", "food", "look", "he", "found", "wrong", "guess")  # columns that hold several values
SHE = ("girl", "princess", "fairy", "hen", "queen", "witch", "mermaid", "cow")
HE = ("boy", "prince", "snowman", "giant", "king", "wizard")
CHILD = ("girl", "boy")
SIZES = ("little", "small", "young", "old", "tiny", "big", "huge", "tall")
FORMS = ("he", "him", "his", "himself")
HER = ("she", "her", "her", "herself")
PRONOUNS = {"he": dict(zip(FORMS, FORMS, strict=True)), "she": dict(zip(FORMS, HER, strict=True))}
# Hero, friend, stranger, elder, somebody big: how likely each is old, a child, and has a name.
ROLES = {"h": (0.08, 0.25, 0.75), "f": (0, 0.2, 0.85), "s": (0.4, 0, 0), "e": (1, 0, 0), "b": (0, 0, 0)}
FAMILY = ("mother", "mother", "father", "grandmother", "aunt", "grandfather")
SLOT = re.compile(r"<(@?)([a-zA-Z]+)(\d?)(?:\.(\w+))?>")
REPLY = re.compile(r'(\?"[^"]{0,40}"[^"]*," )said')  # what follows a question
Row = dict[str, str]


@cache
def split(text: str) -> list[str]:
    """Parts of a text between the bars that are outside of braces."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "{") - (c == "}")
        if c == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


@dataclass
class Grammar:
    """The two text files, read; every line with its guard, which may be empty."""

    tables: dict[str, list[tuple[str, Row]]] = field(default_factory=dict)
    rules: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    plots: dict[str, list[list[tuple[str, str]]]] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Grammar:
        out = cls()
        kind, name, columns = "", "", [""]
        for line in [s for f in ("words.txt", "plots.txt") for s in (HERE / f).read_text().splitlines()]:
            if line.startswith(("## ", ":: ", "== ")):
                kind, (name, _, names) = line[:2], line[3:].partition(": ")
                columns = names.split(" | ")
                if kind == "==":
                    out.plots[name] = [[]]
                continue
            if line.startswith("# "):
                continue
            guard, body = re.fullmatch(r"(?:\[(!?\w+)\] )?(.*?) *", line).groups(default="")  # type: ignore[union-attr]
            if kind == "==" and not line:
                out.plots[name].append([])
            elif kind == "==":
                out.plots[name][-1].append((guard, body))
            elif kind == "::" and line:
                out.rules.setdefault(name, []).append((guard, body))
            elif kind == "##" and line:
                row = dict(zip(columns, [cell.strip() for cell in split(body)], strict=True))
                out.tables.setdefault(name, []).append((guard, row))
        out.plots = {name: [beat for beat in beats if beat] for name, beats in out.plots.items()}
        return out


@dataclass
class Person:
    noun: str
    pronoun: str
    name: str  # "" where the tale gives none
    adjectives: str
    row: Row
    own: str = ""  # "his mother": always said like this
    known: bool = False


class Tale:
    """One telling: the state, and the text written from it."""

    def __init__(self, grammar: Grammar, rng: random.Random) -> None:
        self.grammar, self.rng = grammar, rng
        self.rows: dict[str, Row] = {}
        self.people: dict[str, Person] = {}
        self.dated = False  # the season was told

    def allowed(self, guard: str) -> bool:
        """Guards: the season was told, the hero has a name, a role was introduced, or the kind of season."""
        if not guard:
            return True
        flag = guard.lstrip("!")
        if flag == "dated":
            on = self.dated
        elif flag == "named":
            on = bool(self.person("h").name)
        elif flag in ROLES:
            on = flag in self.people and self.people[flag].known
        else:
            on = self.row("season", "")["flag"] == flag
        return on != guard.startswith("!")

    def row(self, table: str, index: str) -> Row:
        """The row of a table that this tale uses; another one for another index."""
        key = table + index
        if key not in self.rows:
            used = [r for k, r in self.rows.items() if k.rstrip("123") == table]
            rows = [r for guard, r in self.grammar.tables[table] if self.allowed(guard)]
            first = next(iter(rows[0]))
            drawn = self.rng.choice([r for r in rows if all(r[first] != u[first] for u in used)])
            self.rows[key] = {k: self.rng.choice(v.split(", ")) if k in LISTS else v for k, v in drawn.items()}
        return self.rows[key]

    def person(self, role: str) -> Person:
        if role not in self.people:
            self.people[role] = self.parent() if role == "p" else self.cast(role)
        return self.people[role]

    def parent(self) -> Person:
        """Whoever is at home with the hero."""
        hero = self.person("h")
        couple = ("wife", "brother") if hero.pronoun == "he" else ("husband", "sister")
        noun = self.rng.choice(couple if hero.row["class"] == "old" else FAMILY)
        pronoun = "he" if noun in ("father", "husband", "brother", "grandfather") else "she"
        return Person(noun, pronoun, "", "", hero.row, PRONOUNS[hero.pronoun]["his"] + " " + noun, True)

    def cast(self, role: str) -> Person:
        """Somebody new for a role, of a kind that is not in the tale yet."""
        rng, tables = self.rng, self.grammar.tables
        old, child, name = ROLES[role]
        taken = {p.noun for p in self.people.values()}
        kinds = [r for guard, r in tables["kind"] if r["noun"] not in taken and self.allowed(guard)]
        olds = [r for _, r in tables["old"] if r["noun"] not in taken]
        if rng.random() < old:
            boy = next(r for _, r in tables["kind"] if r["noun"] == "boy")
            drawn = rng.choice([r for r in olds if role != "h" or re.search("man|er$|herd", r["noun"])])
            row = {**boy, **drawn, "went": "walked, went, hurried"}
            pronoun, words = rng.choice(row["he"].split(", ")), [""]
        else:
            pick = "big" if role == "b" else "child" if rng.random() < child else ""
            kinds = [r for r in kinds if pick in r["class"] and (role == "h" or r["noun"] != "snowman")]
            if pick == "child" and rng.random() < 0.8:
                kinds = [r for r in kinds if r["noun"] in CHILD] or kinds
            if role in "sb":
                kinds = [r for r in kinds if r["class"].startswith("animal") and "far" not in r["class"]]
            row = rng.choice(kinds)
            other = "he" if "h" in self.people and self.people["h"].pronoun == "she" else "she"
            pronoun = other if role == "f" and rng.random() < 0.75 else rng.choice(("he", "she"))
            pronoun = "she" if row["noun"] in SHE else "he" if row["noun"] in HE else pronoun
            look = rng.choice(row["look"].split(", "))
            size = rng.choice(("big", "great", "") if role == "b" else ("little", "little", "small", "young", ""))
            words = rng.choice(([look], [size, look], [size]))
            words = [look] if look in SIZES else words
        row = {**row, **{k: rng.choice(row[k].split(", ")) for k in ("home", "food", "look")}}
        named = rng.random() < (1.0 if row["noun"] in CHILD and role in "hf" else name)
        names = [r[pronoun] for _, r in tables["name"] if r[pronoun] not in {p.name for p in self.people.values()}]
        return Person(row["noun"], pronoun, rng.choice(names) if named else "", " ".join(filter(None, words)), row)

    def say(self, role: str, form: str) -> str:
        """A person in the form that a slot asks for; without a form, a name or "the fox"."""
        p, rng = self.person(role), self.rng
        young = role in "hf" and "old" not in p.noun
        if form in FORMS:
            return PRONOUNS[p.pronoun][form]
        if form in p.row and form != "he":
            return rng.choice(p.row[form].split(", ")) if form == "went" else p.row[form]
        if form == "call":
            return p.name or ("little " if young else "dear ") + p.noun.removeprefix("old ")
        if form == "meet":  # met without a name, and has none from then on
            p.name, p.known = "", True
        if form in ("kind", "meet"):
            return p.noun
        if form == "new" and not p.name:
            p.name = rng.choice([r[p.pronoun] for _, r in self.grammar.tables["name"]])
        if form == "new" or (form == "name" and p.name):
            p.known = True
            return p.name
        if p.own:
            return p.own
        if not p.known or (form == "a" and role == "h"):
            p.known = True
            if form == "" and role == "f":
                the = "" if p.noun in CHILD else f"the {p.noun}"
                return f"{self.say('h', 'his')} friend {p.name} {the}".replace("  ", " ").strip()
            a = f"a {p.adjectives} {p.noun}".replace("  ", " ")
            if form != "a" and p.name:
                a += rng.choice((" named ", " named ", " called ", " by the name of ")) + p.name
            return a
        if p.name and form in ("", "intro") and rng.random() < 0.82:
            return p.name
        return ("the little " if young and rng.random() < 0.2 else "the ") + p.noun

    def choose(self, lines: list[tuple[str, str]]) -> str:
        """One of the lines that may be taken, written out."""
        return self.write(self.rng.choice([text for guard, text in lines if self.allowed(guard)]))

    def fill(self, slot: re.Match[str]) -> str:
        rule, name, index, form = slot.groups(default="")
        low, low_form = name.lower(), form.lower()
        if rule:
            value = self.choose(self.grammar.rules[low])
        elif len(low) == 1:
            value = self.say(low, low_form)
        else:
            self.dated |= low == "season"
            value = self.write(self.row(low, index)[low_form])
        return value[0].upper() + value[1:] if (name + form) != (low + low_form) else value

    def write(self, text: str) -> str:
        """Expand choices and slots from left to right."""
        out = ""
        while text:
            if text[0] == "{":
                depth = 0
                for i, c in enumerate(text):
                    depth += (c == "{") - (c == "}")
                    if not depth:
                        text = self.rng.choice(split(text[1:i])) + text[i + 1 :]
                        break
            elif slot := SLOT.match(text):
                out, text = out + self.fill(slot), text[slot.end() :]
            elif plain := re.match(r"[^<{]+", text):
                out, text = out + plain[0], text[plain.end() :]
            else:
                raise ValueError(f"bad slot: {text[:40]}")
        return out


def tidy(text: str) -> str:
    """Capitals at the start of sentences, a or an, no double spaces."""
    text = re.sub(r" +", " ", text).replace(" \n", "\n").replace("\n ", "\n").strip()
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    text = re.sub(r'((?:^|[.!?]"?\s+)"|(?:^|[.!?]\s+|\."\s+|\n))([a-z])', lambda m: m[1] + m[2].upper(), text)
    return re.sub(r"\.\.+", ".", text).replace("!.", "!").replace("?.", "?").replace(",,", ",")


def tell(grammar: Grammar, plot: str, rng: random.Random) -> str:
    """One tale of a plot."""
    tale, text = Tale(grammar, rng), ""
    beats = grammar.plots[plot]
    for i, beat in enumerate(beats):
        lines = [tale.choose(beat)]
        if 0 < i < len(beats) - 2 and rng.random() < 0.15:
            lines.append(tale.choose(grammar.rules["aside"]))
        text += " ".join(s[:1].upper() + s[1:] for s in lines) + ("\n\n" if rng.random() < 0.35 else " ")
    return REPLY.sub(lambda m: m[1] + rng.choice(("said", "answered", "replied")), tidy(text))


def tales(seed: int) -> Iterator[str]:
    """Tale after tale; the same seed gives the same tales."""
    grammar, rng = Grammar.read(), random.Random(seed)
    while True:
        yield tell(grammar, rng.choice(list(grammar.plots)), rng)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--count", type=int, default=3, help="how many tales (default: 3)")
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    print("\n\n* * *\n\n".join(islice(tales(args.seed), args.count)))


if __name__ == "__main__":
    main()
