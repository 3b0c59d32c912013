"""The publications in which the losses were introduced, by the keys that records use."""

PAPER = "Lemire Paquin 2026"
SOURCES = {
    PAPER: "Lemire Paquin, Chaib-draa, Giguère: Symmetrization of loss functions for robust training of neural "
    "networks in the presence of noisy labels",
    "Ghosh 2017": "Ghosh, Kumar, Sastry: Robust loss functions under label noise for deep neural networks. AAAI",
    "Lin 2017": "Lin, Goyal, Girshick, He, Dollár: Focal loss for dense object detection. ICCV",
    "Zhang 2018": "Zhang, Sabuncu: Generalized cross entropy loss for deep neural networks with noisy labels. NeurIPS",
    "Amid 2019": "Amid, Warmuth, Anil, Koren: Robust bi-tempered logistic loss based on Bregman divergences. NeurIPS",
    "Wang 2019": "Wang, Ma, Chen, Luo, Yi, Bailey: Symmetric cross entropy for robust learning with noisy labels. ICCV",
    "Feng 2020": "Feng, Shu, Lin, Lv, Li, An: Can cross entropy loss be robust to label noise? IJCAI",
    "Ma 2020": "Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML",
    "Menon 2020": "Menon, Rawat, Reddi, Kumar: Can gradient clipping mitigate label noise? ICLR",
    "Englesson 2021": "Englesson, Azizpour: Generalized Jensen-Shannon divergence loss for noisy labels. NeurIPS",
    "Zhou 2021": "Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML",
    "Wei 2022": "Wei, Liu, Liu, Niu, Sugiyama, Liu: To smooth or not? When label smoothing meets noisy labels. ICML",
    "Ye 2023": "Ye, Li, Dai, Jia, Yin: Active negative loss functions for learning with noisy labels. NeurIPS",
    "Zhu 2023": "Zhu, Ying, Yang: Label distributionally robust losses for multi-class classification: consistency, "
    "robustness and adaptivity. ICML",
    "Wang 2025": "Wang, Liu, Zhou, Hu, Zhai, Jiang, Ji: Joint asymmetric loss for learning with noisy labels. ICCV",
    "textbook": "the negative log-likelihood",
}
