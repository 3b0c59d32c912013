"""The publications in which the losses were introduced, by the keys that records use, and the software itself."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

VENUES = {
    "AAAI": "Proceedings of the AAAI Conference on Artificial Intelligence",
    "ICCV": "Proceedings of the International Conference on Computer Vision",
    "ICLR": "International Conference on Learning Representations",
    "ICML": "Proceedings of the International Conference on Machine Learning",
    "IJCAI": "Proceedings of the International Joint Conference on Artificial Intelligence",
    "NeurIPS": "Advances in Neural Information Processing Systems",
}
"""The proceedings of each conference."""
ACCENTS = {"\N{COMBINING ACUTE ACCENT}": "'", "\N{COMBINING GRAVE ACCENT}": "`"}
"""The accents in names of authors, and how LaTeX writes them."""


@dataclass(frozen=True)
class Publication:
    """What a reference needs: authors as "Family, Given and ...", the title, the conference if there was one."""

    authors: str
    title: str
    year: int | None = None
    venue: str | None = None
    """A key of ``VENUES``."""
    note: str | None = None

    @property
    def text(self) -> str:
        """One line for people: authors, title, conference and year."""
        families = [author.partition(",")[0] for author in self.authors.split(" and ")]
        who = " and ".join(families) if len(families) < 3 else f"{families[0]} et al."
        ending = "" if self.title.endswith("?") else "."
        return f"{who}: {self.title}" + (f"{ending} {self.venue} {self.year}" if self.venue else "")

    @property
    def key(self) -> str:
        """The first family name and the year, such as ``ghosh2017``."""
        return re.sub("[^a-z]", "", self.authors.partition(",")[0].lower()) + str(self.year)

    def bibtex(self, key: str | None = None) -> str:
        """The entry of a bibliography. Capitals of the title stay as they are.

        >>> print(PUBLICATIONS["Ghosh 2017"].bibtex())
        @inproceedings{ghosh2017,
          author = {Ghosh, Aritra and Kumar, Himanshu and Sastry, P. S.},
          title = {{Robust loss functions under label noise for deep neural networks}},
          booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
          year = {2017},
        }
        """
        fields = {
            "author": self.authors if "," in self.authors else f"{{{self.authors}}}",
            "title": f"{{{self.title}}}",
            "booktitle": VENUES[self.venue] if self.venue else None,
            "year": self.year,
            "note": self.note,
        }
        lines = [f"  {name} = {{{_latex(str(value))}}}," for name, value in fields.items() if value is not None]
        kind = "inproceedings" if self.venue else "misc"
        return "\n".join([f"@{kind}{{{key or self.key},", *lines, "}"])


def _latex(text: str) -> str:
    """Letters with an accent as LaTeX writes them, because old versions of BibTeX read nothing else."""
    decomposed = unicodedata.normalize("NFD", text)
    return re.sub(f"(.)([{''.join(ACCENTS)}])", lambda found: f"{{\\{ACCENTS[found[2]]}{found[1]}}}", decomposed)


PAPER = "Lemire Paquin 2026"
PUBLICATIONS = {
    PAPER: Publication(
        "Lemire Paquin, Alexandre and Chaib-draa, Brahim and Giguère, Philippe",
        "Symmetrization of loss functions for robust training of neural networks in the presence of noisy labels",
        2026,
    ),
    "Ghosh 2017": Publication(
        "Ghosh, Aritra and Kumar, Himanshu and Sastry, P. S.",
        "Robust loss functions under label noise for deep neural networks", 2017, "AAAI",
    ),
    "Lin 2017": Publication(
        "Lin, Tsung-Yi and Goyal, Priya and Girshick, Ross and He, Kaiming and Dollár, Piotr",
        "Focal loss for dense object detection", 2017, "ICCV",
    ),
    "Zhang 2018": Publication(
        "Zhang, Zhilu and Sabuncu, Mert R.",
        "Generalized cross entropy loss for training deep neural networks with noisy labels", 2018, "NeurIPS",
    ),
    "Amid 2019": Publication(
        "Amid, Ehsan and Warmuth, Manfred K. and Anil, Rohan and Koren, Tomer",
        "Robust bi-tempered logistic loss based on Bregman divergences", 2019, "NeurIPS",
    ),
    "Wang 2019": Publication(
        "Wang, Yisen and Ma, Xingjun and Chen, Zaiyi and Luo, Yuan and Yi, Jinfeng and Bailey, James",
        "Symmetric cross entropy for robust learning with noisy labels", 2019, "ICCV",
    ),
    "Feng 2020": Publication(
        "Feng, Lei and Shu, Senlin and Lin, Zhuoyi and Lv, Fengmao and Li, Li and An, Bo",
        "Can cross entropy loss be robust to label noise?", 2020, "IJCAI",
    ),
    "Ma 2020": Publication(
        "Ma, Xingjun and Huang, Hanxun and Wang, Yisen and Romano, Simone and Erfani, Sarah and Bailey, James",
        "Normalized loss functions for deep learning with noisy labels", 2020, "ICML",
    ),
    "Menon 2020": Publication(
        "Menon, Aditya Krishna and Rawat, Ankit Singh and Reddi, Sashank J. and Kumar, Sanjiv",
        "Can gradient clipping mitigate label noise?", 2020, "ICLR",
    ),
    "Englesson 2021": Publication(
        "Englesson, Erik and Azizpour, Hossein",
        "Generalized Jensen-Shannon divergence loss for learning with noisy labels", 2021, "NeurIPS",
    ),
    "Zhou 2021": Publication(
        "Zhou, Xiong and Liu, Xianming and Jiang, Junjun and Gao, Xin and Ji, Xiangyang",
        "Asymmetric loss functions for learning with noisy labels", 2021, "ICML",
    ),
    "Wei 2022": Publication(
        "Wei, Jiaheng and Liu, Hangyu and Liu, Tongliang and Niu, Gang and Sugiyama, Masashi and Liu, Yang",
        "To smooth or not? When label smoothing meets noisy labels", 2022, "ICML",
    ),
    "Ye 2023": Publication(
        "Ye, Xichen and Li, Xiaoqiang and Dai, Songmin and Liu, Tong and Sun, Yan and Tong, Weiqin",
        "Active negative loss functions for learning with noisy labels", 2023, "NeurIPS",
    ),
    "Zhu 2023": Publication(
        "Zhu, Dixian and Ying, Yiming and Yang, Tianbao",
        "Label distributionally robust losses for multi-class classification: consistency, robustness and adaptivity",
        2023, "ICML",
    ),
    "Wang 2025": Publication(
        "Wang, Jialiang and Liu, Xianming and Zhou, Xiong and Hu, Gangfeng and Zhai, Deming "
        "and Jiang, Junjun and Ji, Xiangyang",
        "Joint asymmetric loss for learning with noisy labels", 2025, "ICCV",
    ),
}  # fmt: skip
SOURCES = {name: publication.text for name, publication in PUBLICATIONS.items()} | {
    "textbook": "the negative log-likelihood"
}
"""The source of each loss, as one line."""
SOFTWARE = Publication("the symloss authors", "symloss: losses for PyTorch that stay right when the labels are wrong")
"""The entry of ``CITATION.cff``, which is not installed with the package."""
