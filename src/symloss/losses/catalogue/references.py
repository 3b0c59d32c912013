"""The publications in which the losses were introduced, by the keys that records use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Publication:
    """What a reference needs: authors as "Family, Given and ...", the title, and the conference if there was one."""

    authors: str
    title: str
    year: int | None = None
    venue: str | None = None
    note: str | None = None

    @property
    def text(self) -> str:
        """One line for people: authors, title, conference and year."""
        families = [author.partition(",")[0] for author in self.authors.split(" and ")]
        who = " and ".join(families) if len(families) < 3 else f"{families[0]} et al."
        ending = "" if self.title.endswith("?") else "."
        return f"{who}: {self.title}" + (f"{ending} {self.venue} {self.year}" if self.venue else "")


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
