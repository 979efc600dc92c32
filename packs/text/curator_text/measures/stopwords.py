"""A few very frequent words for each of many languages: a text that has hardly any of them is no running
text.

English: Gopher's list (Rae et al. 2021, arXiv 2112.11446, appendix A1.1). Known difference: Gopher is English
only; the other lists are eight function words each of the same kind, chosen by hand. A language without a
list has no such rule.
"""

STOP_WORDS: dict[str, tuple[str, ...]] = {language: tuple(words.split()) for language, words in {
    "en": "the be to of and that have with",
    "ca": "el la de que i en un per",
    "cs": "a v na se je že s to",
    "da": "og i at det er en til på",
    "de": "der die das und in zu den mit",
    "el": "και το να του η της με που",
    "es": "de la que el en y los con",
    "et": "ja on ei et see ka oli kui",
    "fi": "ja on ei että se oli myös kuin",
    "fr": "de la le et les des en que",
    "hr": "i u je na se da su za",
    "hu": "a az és hogy nem is egy van",
    "id": "yang dan di dengan untuk dari ini itu",
    "it": "di che e la il un per in",
    "lt": "ir kad su į iš yra tai kaip",
    "lv": "un ir ka ar no uz par kas",
    "nl": "de het een van en in dat met",
    "no": "og i det er en til på som",
    "pl": "i w na się z do że jest",
    "pt": "de a que o e do da em",
    "ro": "de și în la cu nu o este",
    "ru": "и в не на что с по как",
    "sk": "a v na sa je že s to",
    "sl": "in je v na se da za so",
    "sv": "och i att det är en som på",
    "tr": "ve bir bu da için de ile olarak",
    "uk": "і в на що не з до та",
    "vi": "và của là có các trong được cho",
}.items()}
