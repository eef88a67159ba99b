"""The words and turns of phrase of a question about a collection, in English."""

from __future__ import annotations

import re

from langgraph_convcoa.text.questions import PERSONAL

GENERAL = frozenset(["document", "doc", "file", "text", "title", "source"])
PARTICULAR = frozenset(["paper", "report", "article", "note", "manual", "contract"])
NOUNS = GENERAL | PARTICULAR
FORMATS = {name: name for name in ("pdf", "md", "html", "csv", "json", "txt", "docx", "pptx", "xlsx", "epub")} | {
    "markdown": "md", "word": "docx", "powerpoint": "pptx", "excel": "xlsx",
}  # fmt: skip
TOPICS = frozenset(["topic", "theme", "subject"])
OWN_PLACES = frozenset(["library", "folder", "index", "archive", "database", "dataset"])
PLACES = frozenset(["collection", "corpus"])
OWN = frozenset(["this", "your", "my", "our", "these"])
FILLS = frozenset(
    """list show give tell display print enumerate name names named called see view get got have contain contains contained
    hold holds include includes included exist available loaded indexed uploaded stored know find there number count total many
    every complete full whole entire kind kinds type types sort sorts main key major central important general common overview
    summary content contents cover covers covered discuss discussed deal deals treat treated describe published written dated
    released year date please can could would want need like also currently together altogether ones one new newest latest
    recent oldest order upload add added newer older everything anything something us we say says large big size ask talk
    talks speak speaks tells concern concerns address addresses overall broad different various several individual current
    single data provide provided given accessible access use using search searchable offer exactly actually""".split()  # noqa: SIM905
)
PAST = frozenset(["was", "were", "did", "had"])
POINTS = frozenset(
    """the all my your our which there have list show any available every these uploaded indexed loaded stored upload here
    got""".split()  # noqa: SIM905
)
BEGINS = frozenset("which what list show give name display enumerate print tell are do any".split())  # noqa: SIM905
PEOPLE = frozenset(PERSONAL.split("|"))
WHOLE = frozenset("about describe overview summary contain cover discuss say tell".split())  # noqa: SIM905
_SERVICES = "send|email|mail|call|phone|book|buy|order|purchase|reserve|schedule|pay|remind"
_DEEDS = "delete|remove|post|tweet|download|install|open|close|turn|switch|set"
TELLS = re.compile(
    rf"\b(?:(?:{'|'.join(sorted(NOUNS | set(FORMATS) | TOPICS))})s?|collection|corpus|knowledge base"
    rf"|{'|'.join(sorted(OWN_PLACES))}|you|here|help|have|in there|all this|overview|everything|summar\w+|sum up|outline"
    r"|tl;?dr|vs|versus|assistant|\w*bot|am i|sets|synopsis|gist|points?|compar\w+|contrast|differ\w*|next|tomorrow|tonight"
    rf"|predict|forecast|foretell|write|{_SERVICES}|{_DEEDS})\b"
    r"|\.\w{2,5}\b",
    re.IGNORECASE,
)
"""A word that every question about a collection has, so that others are not read any further."""
POLITE = re.compile(
    r"^(?:(?:please|ok(?:ay)?|so|and|but|now|then|hi|hello|well|briefly)\b[\s,]*|(?:can|could|would|will) you\b(?: please)?\s*"
    r"|i(?:'d| would) like (?:you )?to\s+|i want (?:you )?to\s+"
    r"|in (?:a few|one|two|three|\d) (?:sentences?|words|lines)\b[\s,]*)+"
    r"|\s+(?:please|briefly|in (?:brief|short)|in (?:a few|one|two|three|\d) (?:sentences?|words|lines))[\s.?!]*$",
    re.IGNORECASE,
)
CONTENTS = re.compile(
    r"what is (?:all )?in (?:here|there)|what have you got(?: here)?|what do (?:you|we) have(?: here| in here)?"
    r"|what do you know(?: about)?|what can (?:you tell me|i ask)(?: you)?(?: about)?|what is all this(?: about)?"
    r"|what (?:(?:kinds?|sorts?) of )?(?:stuff|things|materials?|information|knowledge) do (?:you|we) have"
    r"|(?:(?:give|show|tell) (?:me |us )?)?(?:an )?overview"
    r"|(?:give me |tell me )?(?:a list of )?everything (?:that )?you (?:know|have)(?: about)?"
    r"|(?:summari[sz]e|sum up|describe|list|show(?: me)?) (?:it all|everything|all of (?:it|this))"
)
ASSISTANT = re.compile(
    r"(?:who|what) are you|what can you do(?: for me)?|what are you (?:able to do|capable of)|how can you help(?: me)?"
    r"|what (?:can|does) (?:this|the) (?:assistant|chatbot|bot|tool|app|system) do|what can i use (?:you|this) for"
    r"|wh(?:o|at) am i (?:talking|speaking|chatting) (?:to|with)|what is this (?:assistant|chatbot|bot|tool|app)"
    r"|how do you work|what is your name|who (?:made|built|created|wrote|programmed) you|help|help me"
    r"|are you (?:an? )?(?:ai|bot|robot|chatbot|human|person|machine|model|chatgpt|gpt|claude|gemini|llama)"
)
DEED = re.compile(
    rf"(?:(?:{_SERVICES}) (?:me|us|him|her|them|an?|my|our)"
    r"|write (?:(?:me|him|her|them|us) )?(?:an? )?(?:e-?mail|letter|message|tweet|post)"
    rf"|(?:{_SERVICES}|{_DEEDS}) .*\bfor (?:me|us))\b"
)
"""What is said to a person; "open the valve" is a step that a document may tell of."""
FUTURE = re.compile(
    r"(?=.*\b(?:will|going to|gonna)\b).*\b(?:tomorrow|tonight|next (?:week|month|year|time|summer|winter))\b"
    r"|(?:predict|forecast|foretell) "
)
SUMMARY = re.compile(
    r"^(?:summari[sz]e|sum up|outline|tl;?dr(?: of)?|(?:(?:give|write|show) (?:me |us )?|i (?:want|need) )?(?:an? |the )?"
    r"(?:(?:short|brief|quick|concise|one-paragraph) )?(?:summary|overview|outline|synopsis|abstract)(?: of| for| on|:)"
    r"|(?:what (?:is|are)|(?:give|tell) (?:me |us )?) ?the (?:gist|main points?|key points?) (?:of|in))\s+(?P<name>.+)$",
    re.IGNORECASE,
)
_DOCUMENT = rf"(?:{'|'.join(sorted(NOUNS | set(FORMATS)))})"
ABOUT = re.compile(
    rf"^what (?:is|does|do|are) (?P<name>.*\b{_DOCUMENT}s?\b.*?|\S+\.\w{{2,5}})"
    r" (?:about|say|contain|cover|discuss|describe|deal with|tell(?: us| me)?)$"
    rf"|^(?:explain|describe|introduce) (?P<thing>.*\b{_DOCUMENT}\b.*|\S+\.\w{{2,5}})$",
    re.IGNORECASE,
)
HAVE = re.compile(r"(?:do you have|have you got) (?:any|some)thing (?:on|about|regarding) (?P<name>.+)")
COMPARISON = re.compile(
    r"^(?:compare|contrast|(?:give (?:me |us )?|make )?a comparison (?:of|between)"
    r"|(?:what (?:is|are) )?(?:the )?differences? between|what sets(?=.+ apart from )"
    r"|how (?:do|does)(?=.+ (?:differ$|compares? (?:to|with) )))\s+(?P<name>.+?)(?: differ)?$"
    r"|^(?P<pair>\S.* (?:vs\.?|versus) .*\S)$",
    re.IGNORECASE,
)
FILE = re.compile(r"\w\.\w{2,5}\b")
JOINTS = re.compile(
    r",\s*(?:and |with |to )?|\s+(?:apart from|compares? (?:to|with)|and|with|to|against|versus|vs\.?|from)\s+", re.IGNORECASE
)
FOLLOWS = re.compile(r"^(?:(?:and|what about|how about|now|also|then|ok(?:ay)?|but|or)\b[\s,]*)+", re.IGNORECASE)
MORE = re.compile(
    r"(?:show |list |give )?(?:me )?(?:(?:the )?(?:next|rest|others?|remaining)(?: ones?| page)?|(?:some )?more(?: of them)?"
    r"|what else|go on|continue|(?:what|which) (?:are the )?others?)"
)
THEM = re.compile(r"(?:list|show|name|which|what|give)(?: me)?(?: are)?(?: they| them| those| these| ones)?(?: called)?")
THEIR = re.compile(r"(?:what are |list |show |give )?(?:me )?(?:their|the) (?:titles|names)")
IT = re.compile(r"(?:it|this|that|this one|that one|them|these|those|both|the two|both of them)")
ONE_OF_THEM = re.compile(r"^(?:it|this|that)(?: one)?\b(?=\W+\w)|(?<=\w )\b(?:it|this|that)(?: one)?$", re.IGNORECASE)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
PLACES_IN_ORDER = {name: n for n, name in enumerate(_ORDINALS, 1)} | {"last": -1}
COUNTS = {"two": 2, "three": 3, "four": 4}
ORDINAL = re.compile(r"(\d{1,4})(?:st|nd|rd|th)?")
RANGE: dict[str, tuple[int | None, int | None]] = {
    "newer": (1, None), "older": (None, -1), "since": (0, None), "after": (1, None), "before": (None, -1), "until": (None, 0),
    "till": (None, 0),
}  # fmt: skip
"""What the first and the last year are apart from the one that is named, None for the first or last of all."""
