"""Short texts in which almost every sentence names somebody or something again.

Most words of a tale follow from the ones just before.  Names and things do not: they have to be looked up, far back.
Reading only tales, a model learns the first kind long before the second; here there is little but the second.
"""

from __future__ import annotations

import numpy as np
from tales import Grammar

OPENINGS = ("Once upon a time there was a", "There was once a", "A")
SENTENCES = """\
{n} {v}.
"{q}," said {n}.
The {k} {v}.
"{q}," said the {k}.
{He} {v}.
{n} {v}, and the {k} {v2}.
{m} {v}.
"{q}," said {m}.
The {j} {v}.
"{q}," said the {j}.
"{Q}?" asked {n}. "{q}," said {m}.
{n} looked at {m}.
{m} looked at the {k}.
"Come, {n}," said {m}.
The little {k} {v}.
{n} had a {t}. The {t} was {c}.
"Where is the {t}?" asked {m}.
{n} took the {t}.
{n} lost the {t}. {He} {v}.""".splitlines()
WORDS = {
    "v": "ran,walked,sang,laughed,cried,sat down,went home,was happy,was sad,looked up,fell asleep,smiled,jumped,"
    "waited,took a deep breath,came back",
    "q": "Yes,No,Come with me,I am here,I am hungry,Thank you,Wait,Let us go,I know,It is late,Good morning,"
    "I will help you",
    "Q": "Who is there,Where are you,What is it,Can you help me,Why",
    "c": "red,blue,old,new,big,small,round,white",
    "t": "rope,lantern,blanket,shovel,boots,whistle,soup,bread,pie,cake,cheese,map,egg,letter",
}
LISTS = {slot: words.split(",") for slot, words in WORDS.items()} | {"v2": WORDS["v"].split(",")}


class Drills:
    """Drill after drill; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        tables = {name: [row for _, row in rows] for name, rows in Grammar.read().tables.items()}
        self.rng = np.random.default_rng(seed)
        self.names = [(row["he"], row["she"]) for row in tables["name"]]
        self.kinds = [row["noun"] for row in tables["kind"] + tables["old"]]
        self.things = [row["it"] for row in tables["thing"]] + LISTS["t"]

    def __call__(self) -> str:
        pick = self.rng.choice
        sex, other = int(self.rng.integers(2)), int(self.rng.integers(2))
        n = str(pick(self.names)[sex])
        m = str(pick([pair[other] for pair in self.names if pair[other] != n]))
        k, j = pick(self.kinds, 2, replace=False)
        he, t = ("He", "She")[sex], pick(self.things)
        text = f"{pick(OPENINGS)} {pick(('little', 'small', 'young', 'old', ''))} {k} named {n}.".replace("  ", " ")
        text += f" {he} met a {j} named {m}."
        for _ in range(12):
            words = {slot: pick(choices) for slot, choices in LISTS.items()}
            text += " " + str(pick(SENTENCES)).format(**words | {"n": n, "m": m, "k": k, "j": j, "t": t, "He": he})
        return text
