from tpujob.main import app

app()
