"""stub"""


class BatchAnalyzer:
    def __init__(self, p):
        pass

    def collect_run_data(self):
        pass

    def save(self):
        pass
