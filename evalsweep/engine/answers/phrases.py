"""Phrases, by language: what announces an answer, what ends it, and what makes a number a circumstance of
another."""

from __future__ import annotations

import re

from evalsweep.engine.answers.markup import folded


def _any(*parts: str) -> str:
    return "(?:" + "|".join(folded(part) for part in parts) + ")"


# The word for "answer", in languages whose word it always is; English has patterns of its own below.
NOUNS = {
    "ar, ur": r"(?:ال)?جواب|(?:ال)?[إا]جابة",
    "bn": r"উত্তর",
    "cs, sk": r"\bodpověď\b",
    "da, no, sv": r"\bsvare[nt]\b|\bsvar\b",
    "de": r"\b(?:antwort|lösung)\b",
    "el": r"\bαπάντηση\b",
    "es": r"\brespuesta\b",
    "fa": r"پاسخ",
    "fi": r"\bvastaus\b",
    "fr": r"\bréponse\b",
    "gu": r"જવાબ",
    "he": r"התשובה|תשובה",
    "hi, mr": r"उत्तर|जवाब",
    "hu": r"\bválasz\b",
    "id, ms": r"\bjawaban(?:nya)?\b|\bjawapan(?:nya)?\b",
    "it": r"\brisposta\b",
    "ja": r"答え|解答|正解|回答",
    "kn": r"ಉತ್ತರ",
    "ko": r"정답|해답|(?<![가-힣])답변?(?=[은:이 ])",
    "ml": r"ഉത്തരം",
    "nl": r"\bantwoord\b",
    "pa": r"ਜਵਾਬ|ਉੱਤਰ",
    "pl": r"\bodpowiedź\b",
    "pt": r"\bresposta\b",
    "ro": r"\brăspunsul\b",
    "ru": r"\bответ\b",
    "sw": r"\bjibu\b",
    "ta": r"விடை|பதில்",
    "te": r"సమాధానం|జవాబు",
    "th": r"คำตอบ",
    "tr": r"\b(?:cevap|cevabı|yanıt)\b",
    "uk": r"\bвідповідь\b",
    "vi": r"\bđáp (?:án|số)\b|\bcâu trả lời\b",
    "zh": r"答案|(?<![^\n])[ \t]{0,9}答(?=[:,])",
}
ADJECTIVES = _any(
    r"\s(?:finale?|final[ae]?|correct[ao]?|correcte|corret[ao]|corretta|définitive|definitiva"
    r"|ostateczna|akhir|cuối cùng)\b",
    r"\s?(?:ال)?(?:نهائية?|صحيحة?)",
    r"\sसही",
)
# Is, equals, comes to
COPULAS = _any(
    r"\s(?:is|was|will be|would be|should be|must be|equals|comes (?:out )?to)\b",
    r"\s(?:lautet|ist|beträgt|wäre|es|sería|est|serait|è|é|será|são|is|bedraagt|är|er|on|to|brzmi"
    r"|wynosi|je|zní|este|az)\b",
    r"\s(?:равен|равно|равна|это|составляет|такой|дорівнює|είναι|ni|adalah|ialah|là|bằng)\b",
    r"\s?(?:是|为|為|等于|等於|就是|应该是|應該是|应为|即为|即|は|が|은|는|이)",
    r"\s?(?:ก็?คือ|คือ|เท่ากับ|เป็น)",
    r"\s(?:है|हैं|होगा|আছে|হল|হলো|হবে|هو|هي|هى|ہے|است|הוא|היא)(?!\w)",
)
_NOUN = "(?:" + "|".join(folded(noun) for noun in NOUNS.values()) + ")"
_CORRECT = r"(?!\s+(?:correct|right|wrong|incorrect|reasonable|verified|consistent|confirmed|valid|plausible)\b)"
_ENGLISH_TO = r"(?:\s(?:to|for)\s[^.:\n]{1,60}?)?"

# One marker: a box, the four hashes, a tag, or a word for "answer", which "is" or a colon may follow
MARKER = re.compile(
    r"(?P<box>\\{1,2}(?:boxed|fbox)\s?\{)|(?P<hash>(?<!#)\#{4}(?!\#))|(?P<tag><[\w -]{0,9}answer>)"
    rf"|(?P<noun>\bfinal[ _]answer\b|\banswer(?={_ENGLISH_TO}\s(?:is|was|will|would|should|must"
    rf"|equals|comes)\b)"
    rf"|(?<![^\n{{,])[ \t#>(\"'*|]{{0,9}}answer\b|(?-i:\b(?:Answer|ANSWER)\b(?=\s?:))"
    rf"|(?<![^\n])[ \t]{{0,9}}A(?=:)"
    rf"|\b(?:the|my|our)\s(?:correct\s)?answer(?=\s?[:=])|{_NOUN}{ADJECTIVES}?)"
    rf"[\"')*]{{0,3}}{_ENGLISH_TO}(?:(?P<is>{COPULAS}){_CORRECT}|\s?(?P<colon>[:=]|[-–—](?=\s)))?",
    re.IGNORECASE,
)
# What follows a number that is the answer, with its unit
IS_THE_ANSWER = re.compile(
    r"(?:\s[a-z]{1,12}){0,2}\s(?:is|are)\s(?:the|my|our)\s(?:final\s|correct\s|right\s)?(?:answer|result)\b(?!\sto\b)",
    re.IGNORECASE,
)
CHECKS_THE_ANSWER = re.compile(
    r"\b(?:check|verif|confirm|test|validat)\w*\s(?:that\s|if\s)?(?:\w+\s)?\Z", re.IGNORECASE
)

# What may stand between a marker and its number
FILLER = re.compile(
    r"(?:[\s:=*\"'“”«»(\[{>≈≃≅–—→⇒,|-]|\b[A-Za-z](?=\s?=)|"
    + _any(
        r"\b(?:about|approximately|approx\.?|around|roughly|exactly|only|just|simply|nearly|almost"
        r"|equal to|equals|is|be|in total)\b",
        r"\b(?:a |the )?(?:grand )?total(?: of| is)?\b",
        r"\b(?:etwa|ungefähr|rund|genau|insgesamt|aproximadamente|cerca de|unos|environ|exactement"
        r"|около|примерно|khoảng|sekitar|circa|ca\.)",
        r"约|約|大约|大約|大概|共|一共|总共|總共|合計|전체|총|약|是|は|ประมาณ|लगभग|حوالي|तक़रीबन",
    )
    + r")*+",
    re.IGNORECASE,
)

SENTENCE_END = re.compile(
    r"\n|(?<!\brs)(?<!\bapprox)(?<!\bca)(?<!\bno)(?<!\bmr)(?<!\bdr)(?<!\bmrs)(?<!\bapx)[.!?](?=[\s\"'”)\]}]|$)"
    r"|[。｡!?؟।۔။។](?!\d)|;(?=\s)|؛",
    re.IGNORECASE,
)
CLAUSE = re.compile(
    _any(
        r",?\s(?:so(?!\s(?:far|that|many|much)\b)|therefore|thus|hence|which means|meaning|also"
        r"|daher|por lo tanto|donc|portanto|quindi|поэтому)\s",
        r"[,，]?(?:所以|因此|だから|よって|따라서)",
        r"⇒|→",
    ),
    re.IGNORECASE,
)
_BECAUSE = _any(
    r"\b(?:because|since|given that|due to|weil|denn|porque|ya que|parce que|car|потому|так как|perché)\s",
    r"因为|因為|なぜなら|왜냐하면|لأن|क्योंकि|เพราะ",
)
BECAUSE = re.compile(_BECAUSE, re.IGNORECASE)
REASON = re.compile(_BECAUSE + r"|:\s|,\s(?:which(?!\s(?:we\s)?round)|as|where|up from|down from)\s", re.IGNORECASE)
RESTART = re.compile(r"\b(?:no,? wait|wait,|sorry,|i mean|correction:?|or rather|actually,)", re.IGNORECASE)
CHECK = re.compile(
    r"(?:\n|[.。!]\s?)[ \t#*]{0,9}"
    + _any(
        r"(?:(?:let me|let's|let us|to|i'll|we can)\s)?(?:double.?)?(?:check|verify|verification"
        r"|sanity check|proof)\w*\b(?!\s?out)",
        r"(?:probe|überprüfung|comprobación|comprobemos|vérification|vérifions|проверка|проверим"
        r"|verificação|verifica)\b",
        r"验证|驗證|检验|检查|検算|確認|확인|검산|التحقق|जाँच|जांच|ตรวจสอบ",
    ),
    re.IGNORECASE,
)

_BORDER = r"\n[ \t#>*(]{0,20}"
_QUESTIONS = _any(
    r"(?:next |new )?(?:question|problem|exercise)|q",
    r"pregunta|problema|frage|aufgabe|question|problème|pergunta|domanda|вопрос|задача|soru|câu hỏi"
    r"|bài toán|pertanyaan|soal|swali",
    r"问题|問題|题目|題目|问|問|質問|질문|문제|السؤال|سؤال|प्रश्न|সমস্যা|প্রশ্ন|คำถาม|โจทย์|ప్రశ్న",
)
_ROLES = _any(r"human|user|assistant|student|instruction", r"用户|使用者|ユーザー|사용자|пользователь|usuario|benutzer")
NEW_TURN = re.compile(
    rf"{_BORDER}(?:{_QUESTIONS}\s?#?\d{{0,4}}[ \t]{{0,9}}(?:[:.)]|\n|$)|{_ROLES}\s?\d{{0,4}}[ \t]{{0,9}}:)"
    r"|\n(?:user|human|assistant|model)[ \t]{0,9}(?=\n)"  # a chat template without its special tokens
    r"|\n[ \t]{0,9}\#{2,4}[ \t](?:instruction|human|user|input)\b|\n?\[/?INST\]",
    re.IGNORECASE,
)

# Tags of chat templates and of thinking, in the original text
TAG = re.compile(
    r"(?P<open><(?:think|thinking|thought|reasoning|scratchpad)>|◁think▷|<\|begin_of_thought\|>|"
    r"<\|channel\|>analysis<\|message\|>)"
    r"|(?P<close></(?:think|thinking|thought|reasoning|scratchpad)>|◁/think▷|<\|end_of_thought\|>|"
    r"<\|channel\|>final<\|message\|>)"
    r"|(?P<end><\|(?:im_end|eot_id|end|endoftext|end_of_text|return|eom_id|user|assistant)\|>|"
    r"<\|im_start\|>user|</s>|<eos>|<end_of_turn>"
    r"|<start_of_turn>user|<｜end▁of▁sentence｜>|<｜User｜>)",
    re.IGNORECASE,
)

# Not the answer: "not 7 but 29"
NEGATED = re.compile(
    _any(
        r"(?:\b(?:not|never|rather than|instead of|nicht|statt|keine|pas|au lieu de|en lugar de|não"
        r"|non|niet|bukan|không phải|nie)|n't"
        r"|\bне|ليس|לא)\s(?:(?:just|only|equal to|be|the|a)\s)?",
        r"(?:不是|而不是|并非|並非|ไม่ใช่)\s?",
    )
    + r"\Z",
    re.IGNORECASE,
)
NEGATED_AFTER = re.compile(
    _any(r"\s?\S{0,4}(?:ではなく|じゃなく|でなく|가 아니라|이 아니라|नहीं)", r",?\s?sino\s"), re.IGNORECASE
)

LABEL = re.compile(
    _any(
        r"\b(?:step|part|case|method|equation|eq\.|option|example|section|figure|table|chapter"
        r"|confidence|page|grade)s?\s?[:#(]?\s?",
        r"\b(?:schritt|paso|étape|passo|шаг|bước|langkah|adım)\s",
        r"第|步骤\s?|ステップ\s?|단계\s?|चरण\s?|ขั้นตอนที่\s?|الخطوة\s?",
    )
    + r"\Z",
    re.IGNORECASE,
)
PLACES = re.compile(r"\s?-?(?:decimal|significant|digit|個の|位小数)", re.IGNORECASE)
COMPARED = re.compile(r"\s(?:more|less|fewer|older|younger|greater|times)\b[^.\n]{0,20}?\sthan\s\S?\d", re.IGNORECASE)
TIME = _any(
    r"(?:second|minute|min|hour|hr|day|night|week|weekend|month|year|decade|trip|round|time)s?\b",
    r"(?:sekunden?|minuten?|stunden?|tag(?:en?)?|wochen?|monat(?:en?)?|jahr(?:en?)?)\b",
    r"(?:segundos?|minutos?|horas?|días?|dias?|semanas?|mes(?:es)?|años?|anos?)\b",
    r"(?:secondes?|minutes?|heures?|jours?|semaines?|mois|ans?|années?|giorn[oi]|ore|ora"
    r"|settiman[ae]|ann[oi]|minut[oi])\b",
    r"(?:дн\w{1,3}|день|час\w{0,3}|минут\w{0,2}|недел\w{1,2}|месяц\w{0,3}|лет|год\w{0,2})\b",
    r"(?:ngày|giờ|tuần|tháng|năm|phút|hari|jam|minggu|bulan|tahun|gün|saat|hafta)\b",
    r"(?:天|日|小时|小時|時間|分钟|分鐘|周|週間|个月|個月|年)(?:[后後内內里裡中间間で]|以内|のうち)",
    r"(?:일|시간|주|개월|년)\s?(?:동안|후|간)|दिन|घंटे|घंटों|हफ़्ते|أيام|يوم|ساعات|أسابيع|วัน|ชั่วโมง|สัปดาห์",
)
_TIMED = _any(
    r"\b(?:in|after|for|per|every|each|within|during|over|of|at|by|from|for (?:the|all)"
    r"|the (?:first|last|next|whole))\s",
    r"\b(?:nach|für|während|pro|binnen|en|durante|por|cada|después de|tras|après|pendant|chaque|em"
    r"|depois de|dopo|per|ogni)\s",
    r"(?<!\w)(?:за|через|в|каждые|sau|trong|mỗi|selama|dalam|setelah|setiap|her|في|بعد|خلال|لمدة|ใน"
    r"|หลัง|เป็นเวลา)\s",
)
# Never an answer beside another number: "in 3 days", "each of the 4 friends", "than 25"
CIRCUMSTANCE = re.compile(_TIMED + r"\Z", re.IGNORECASE)
TIME_AFTER = re.compile(r"\s?-?" + TIME, re.IGNORECASE)
DEPENDENT = re.compile(
    _any(
        r"\b(?:per|every|among|amongst|than|out of|of the|of his|of her|of their|of these|of those"
        r"|of all|each of|between|split by|divided by)"
        r"\s(?:the\s|his\s|her\s|their\s|these\s|those\s)?",
        r"\b(?:als|que|más que|de los|de las|des|dei|degli|чем|из)\s",
        r"每|比",
    )
    + r"\Z",
    re.IGNORECASE,
)
_NOT_OF = "".join(  # "a total of 29"
    rf"(?<!\b{noun} )"
    for noun in ("total", "sum", "average", "profit", "cost", "amount", "maximum", "minimum", "speed", "age", "price")
)
# Less of an answer than a number beside it, unless money: "29 eggs for 3 people"
PREPOSITION = re.compile(
    _any(
        _NOT_OF + r"\b(?:of|in|at|by|from|with|for|per|on|into|before|after|until"
        r"|over|within|during|across|using)"
        r"\s(?:the\s|all\s|his\s|her\s|their\s)?",
        r"\b(?:after|before|by|from|of|for)\s\w{1,15}ing\s",
        r"\bto\s(?!get|make|be|find|equal|reach|give|total)\w{1,12}\s",
        r"\b(?:für|mit|von|aus|para|con|de|por|pour|avec|dans|com|em|для|из|от|dari|untuk|cho|từ)\s",
    )
    + r"\Z",
    re.IGNORECASE,
)
REMAINS = re.compile(r"\s(?:[\w-]{1,20}\s){0,2}(?:left|remaining|in total|in all|altogether|total)\b", re.IGNORECASE)
# What gives a result: "the number of eggs in 3 days is 29"
RESULT = re.compile(
    r"(?:[=≈]|"
    + _any(
        r"\b(?:is|are|was|were|be|equals?|makes?|made|gives?|leaves?|gets?|got|becomes?|earns?"
        r"|earned|costs?|comes to|adds up to|total(?:s| of))\s",
        r"\b(?:ist|sind|ergibt|macht|es|son|hay|est|sont|è|sono|é|são|равно|получится|будет|là|adalah)\s",
        r"是|为|得|共|有|等于|คือ|เท่ากับ",
    )
    + r")(?:\s?(?:about|approximately|only|exactly|just|a total of|equal to|now|then)\b)?\s?\Z",
    re.IGNORECASE,
)
ROUNDS_TO = re.compile(r"\bround\w*\s(?:[\w.]+\s){0,3}to\s\S?\Z", re.IGNORECASE)
